"""The cluster of a run: a shop whose replicas come and go, an Ingress per gateway, and many more Ingresses for changes."""

import base64
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import network
from api import STRATEGIC_PATCH, KubeObject
from fixture import ClusterFixture, wait_for
from kubernetes import KeptApi

NAMESPACE = "shop"
HOST = "shop.example"
PORT = 8080
# Requested path: a body of 1 KiB.
PATH = "/1k"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SHOP_PODS = f"{PODS}?labelSelector=app%3Dshop"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/shop"
INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dshop"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MANY_LABEL = "lab"
ROLLOUT_SECONDS = 90
CREATORS = 4


def named(version: str, kind: str, name: str, **members: object) -> KubeObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **members}


def ingress_class(name: str) -> str:
    """The class of a gateway."""
    return f"lab-{name}"


def ingress(name: str, gateway: str, host: str, path: str = "/", service: str = "shop", tls: bool = True) -> KubeObject:
    backend = {"service": {"name": service, "port": {"number": 80}}}
    rule = {"host": host, "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}
    spec = {"ingressClassName": ingress_class(gateway), "rules": [rule]}
    if tls:
        spec["tls"] = [{"hosts": [host], "secretName": "shop"}]
    return named("networking.k8s.io/v1", "Ingress", name, spec=spec)


def listed(text: str) -> list[int]:
    return [int(word) for word in text.split()]


class ShopWorld:
    """The objects of the run and the steps of its scenarios."""

    def __init__(self, fixture: ClusterFixture, drain_s: int):
        self.fixture, self.drain_s = fixture, drain_s
        self.client = fixture.cluster.client()
        self.certificate, self.key = fixture.folder / "shop.crt", fixture.folder / "shop.key"

    def start(self, replicas: int, gateways: dict[str, str]) -> None:
        """Creates the shop, and a class with an Ingress for each gateway and its controller name."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", self.key,
                        "-out", self.certificate, "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"],
                       check=True, capture_output=True)
        pair = {"tls.crt": self.certificate, "tls.key": self.key}
        data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in pair.items()}
        container = {"name": "shop", "image": "registry.example/upstream:v1", "args": ["upstream", "--listen", f"0.0.0.0:{PORT}"],
                     "lifecycle": {"preStop": {"sleep": {"seconds": self.drain_s}}}}
        template = {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [container]}}
        objects = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            named("v1", "Secret", "shop", type="kubernetes.io/tls", data=data),
            named("apps/v1", "Deployment", "shop", spec={
                "replicas": replicas, "selector": {"matchLabels": {"app": "shop"}}, "template": template}),
            named("v1", "Service", "shop", spec={"selector": {"app": "shop"}, "ports": [{"port": 80, "targetPort": PORT}]})]
        for gateway, controller in gateways.items():
            objects.append({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
                            "metadata": {"name": ingress_class(gateway)}, "spec": {"controller": controller}})
            objects.append(ingress(f"shop-{gateway}", gateway, HOST))
        self.apply(*objects)
        self.settle(replicas)

    def apply(self, *objects: KubeObject) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.fixture.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def pods(self) -> list[KubeObject]:
        """Pods of the shop that do not terminate."""
        found = self.client.get(SHOP_PODS)["items"]
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def ready(self) -> int:
        """Endpoints that the EndpointSlices call ready."""
        slices = self.client.get(SLICES)["items"]
        return sum(bool(one["conditions"].get("ready")) for each in slices for one in each.get("endpoints") or [])

    def scale(self, replicas: int) -> None:
        self.client.patch(DEPLOYMENT, {"spec": {"replicas": replicas}})

    def settle(self, replicas: int) -> None:
        """Waits until exactly these replicas exist and are ready."""
        wait_for(f"{replicas} replicas", lambda: self.ready() == replicas and len(self.client.get(SHOP_PODS)["items"]) == replicas,
                 ROLLOUT_SECONDS)

    def wait_ready(self, replicas: int, seconds: float = 30) -> None:
        """Waits until so many endpoints are ready; those that terminate are not."""
        wait_for(f"{replicas} endpoints", lambda: self.ready() == replicas, seconds)

    def kill_to(self, replicas: int) -> None:
        """Ends surplus replicas by SIGKILL, unannounced, and then scales down to those that are left."""
        pods = self.pods()
        victims = pods[:max(0, len(pods) - replicas)]
        for pod in victims:
            mark = {"metadata": {"annotations": {DELETION_COST: "-100"}}}
            self.client.patch(f"{PODS}/{pod['metadata']['name']}", mark, STRATEGIC_PATCH)
        for pod in victims:
            for pid in self._processes(pod):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.scale(replicas)

    def _processes(self, pod: KubeObject) -> list[int]:
        """The processes of a pod, by its network namespace."""
        number = int.from_bytes(bytes(map(int, pod["status"]["podIP"].split(".")[2:]))) - network.FIRST_POD
        found = subprocess.run(["ip", "netns", "pids", f"{network.PREFIX}-{number}"], capture_output=True, text=True, check=True)
        return listed(found.stdout)

    def programs(self) -> list[int]:
        """The first processes of all pods: the children of the node."""
        assert self.fixture.kubelet
        found = []
        for task in Path(f"/proc/{self.fixture.kubelet.pid}/task").glob("*"):
            try:
                found += listed((task / "children").read_text())
            except OSError:
                continue
        return found

    def create_many(self, gateway: str, count: int) -> list[KubeObject]:
        """Ingresses of a gateway, each with a host of its own; returns them as stored."""
        items = []
        for number in range(count):
            one = ingress(f"many-{gateway}-{number}", gateway, f"many-{number}.example", tls=False)
            one["metadata"]["labels"] = {MANY_LABEL: "many"}
            items.append(one)
        self.create(INGRESSES, items)
        return self.client.get(f"{INGRESSES}?labelSelector={MANY_LABEL}%3Dmany")["items"]

    def create(self, path: str, items: list[KubeObject]) -> None:
        """Creates many objects over few connections."""
        failures: list[Exception] = []

        def post(share: list[KubeObject]) -> None:
            try:
                api = KeptApi(self.fixture.cluster.kubeconfig)
                for item in share:
                    api.ask("POST", path, item)
            except Exception as error:  # Reported below, by the caller's thread.
                failures.append(error)

        threads = [threading.Thread(target=post, args=(items[first::CREATORS],)) for first in range(CREATORS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def delete_many(self) -> None:
        self.client.request("DELETE", f"{INGRESSES}?labelSelector={MANY_LABEL}%3Dmany")


class ReplicaPlan:
    """Scales the shop up and down until the end of a round; runs in a thread beside the load."""

    def __init__(self, world: ShopWorld, replicas: tuple[int, int], stay_s: tuple[float, float], is_killed: bool):
        self.world, self.replicas, self.stay_s, self.is_killed = world, replicas, stay_s, is_killed
        self.marks: list[KubeObject] = []
        self.failures: list[str] = []

    def run(self, begin: float, seconds: float) -> None:
        at, step = self.stay_s[0], 0
        # A change near the end would not show.
        while at < seconds - 1:
            time.sleep(max(0.0, begin + at - time.monotonic()))
            step += 1
            self._change(begin, self.replicas[step % 2], is_up=step % 2 == 1)
            at += self.stay_s[step % 2]

    def _change(self, begin: float, replicas: int, is_up: bool) -> None:
        at = time.monotonic()
        verb = "" if is_up or not self.is_killed else ", killed"
        mark = {"at_ms": round((at - begin) * 1000), "what": f"{replicas} replicas{verb}", "effective_ms": None, "error": None}
        try:
            if is_up or not self.is_killed:
                self.world.scale(replicas)
            else:
                self.world.kill_to(replicas)
            self.world.wait_ready(replicas)
        except Exception as error:  # The thread must not end silently; the mark carries the reason.
            mark["error"] = str(error)
        mark["took_ms"] = (time.monotonic() - at) * 1000
        self.marks.append(mark)

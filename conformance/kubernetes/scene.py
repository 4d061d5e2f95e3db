"""A cluster with Yumen, a shop behind a Gateway, and the steps that tests of robustness are made of."""

import base64
import http.client
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import network
from api import ApiError, KubeObject
from cluster import ROOT
from fixture import ClusterFixture, check, wait_for
from load import LoadTarget, responds

MANIFEST = ROOT / "deploy/kubernetes/yumen.yaml"
SYSTEM = "yumen-system"
SHOP = "shop"
HOST = "shop.example"
STATUS_PORT = 9091
ROUTES = f"/apis/gateway.networking.k8s.io/v1/namespaces/{SHOP}/httproutes"
GATEWAYS = f"/apis/gateway.networking.k8s.io/v1/namespaces/{SHOP}/gateways"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/yumen-controller"


def named(version: str, kind: str, name: str, **members: object) -> KubeObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": SHOP}, **members}


def gateway(name: str, *listeners: KubeObject) -> KubeObject:
    return named("gateway.networking.k8s.io/v1", "Gateway", name,
                 spec={"gatewayClassName": "yumen", "listeners": list(listeners)})


def listener(name: str, protocol: str, port: int, **members: object) -> KubeObject:
    return {"name": name, "protocol": protocol, "port": port, **members}


def route(name: str, path: str, backend: str = "echo", parent: str = "shop", kind: str = "HTTPRoute") -> KubeObject:
    rule: KubeObject = {"backendRefs": [{"name": backend, "port": 80}]}
    if kind == "HTTPRoute":
        rule["matches"] = [{"path": {"type": "PathPrefix", "value": path}}]
    return named("gateway.networking.k8s.io/v1", kind, name, spec={"parentRefs": [{"name": parent}], "rules": [rule]})


class RobustnessScene:
    """The cluster and Yumen in it."""

    def __init__(self, world: ClusterFixture):
        self.world = world
        self.client = world.cluster.client()
        self.authority = world.folder / "shop.crt"
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """A measurement for the report."""
        self.notes.append(text)

    def apply(self, *objects: KubeObject) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.world.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def start(self) -> None:
        """Yumen with two replicas, and the shop with five pods."""
        self.world.cluster.apply(MANIFEST)
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}})
        key = self.world.folder / "shop.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-keyout", key, "-out", self.authority, "-subj", f"/CN={HOST}",
                        "-addext", f"subjectAltName=DNS:{HOST}"], check=True, capture_output=True)
        pair = {"tls.crt": self.authority, "tls.key": key}
        data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in pair.items()}
        container = {"name": "echo", "image": "registry.example/echo-basic:v1",
                     "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
                     "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
        template = {"metadata": {"labels": {"app": "echo"}}, "spec": {"containers": [container]}}
        tls = {"mode": "Terminate", "certificateRefs": [{"name": "shop"}]}
        self.apply(
            named("v1", "Secret", "shop", type="kubernetes.io/tls", data=data),
            named("apps/v1", "Deployment", "echo", spec={
                "replicas": 5, "selector": {"matchLabels": {"app": "echo"}}, "template": template}),
            named("v1", "Service", "echo", spec={"selector": {"app": "echo"}, "ports": [{"port": 80, "targetPort": 3000}]}),
            gateway("shop", listener("http", "HTTP", 80), listener("https", "HTTPS", 443, hostname=HOST, tls=tls)),
            route("shop", "/"))
        self.world.wait_rollout(SYSTEM, "yumen", 120)
        self.world.wait_rollout(SHOP, "echo", 120)
        wait_for("the shop by HTTPS", lambda: responds(self.https()), 60)
        wait_for("the shop by HTTP", lambda: responds(self.http()), 60)

    def address(self, name: str = "shop") -> str:
        return self.world.balancer_address(SHOP, f"yumen-{name}", 60)

    def https(self) -> LoadTarget:
        return LoadTarget(self.address(), 443, HOST, authority=str(self.authority))

    def http(self, **members: Any) -> LoadTarget:
        return LoadTarget(self.address(), 80, HOST, **members)

    def pods(self) -> list[KubeObject]:
        """Yumen's pods that do not terminate."""
        found = self.client.get(f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
        return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]

    def pod_addresses(self) -> list[str]:
        return [pod["status"]["podIP"] for pod in self.pods() if pod["status"].get("podIP")]

    def leader(self) -> str:
        """The name of the pod that holds the lease; empty if none does."""
        lease = self.client.find(LEASE)
        return (lease or {}).get("spec", {}).get("holderIdentity") or ""

    def status(self, address: str, path: str) -> tuple[int, str]:
        """A page of the status listener of a pod."""
        connection = http.client.HTTPConnection(address, STATUS_PORT, timeout=5)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def is_ready(self, address: str) -> bool:
        try:
            return self.status(address, "/status/ready")[0] == 200
        except OSError:
            return False

    def problems(self) -> str:
        """The problems of all replicas, as text."""
        return "\n".join(self.status(address, "/yumen/v1/problems")[1] for address in self.pod_addresses())

    def processes(self, address: str) -> list[int]:
        """The processes of the pod with an address."""
        number = int.from_bytes(bytes(map(int, address.split(".")[2:]))) - network.FIRST_POD
        listed = subprocess.run(["ip", "netns", "pids", f"{network.PREFIX}-{number}"], capture_output=True, text=True, check=True)
        return [int(pid) for pid in listed.stdout.split()]

    def namespace(self, address: str) -> str:
        return f"{network.PREFIX}-{int.from_bytes(bytes(map(int, address.split('.')[2:]))) - network.FIRST_POD}"

    def kill(self, address: str) -> None:
        """SIGKILL to all processes of a pod; the node starts them again, with the same volumes."""
        for pid in self.processes(address):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        self.world.cluster.kubectl("scale", f"deployment/{deployment}", "-n", namespace, f"--replicas={replicas}")
        self.world.wait_rollout(namespace, deployment, 120)

    def scale_yumen(self, replicas: int) -> None:
        """Scales Yumen and waits until the replicas that end have ended."""
        self.scale(SYSTEM, "yumen", replicas)
        path = f"/api/v1/namespaces/{SYSTEM}/pods"
        wait_for(f"{replicas} pods", lambda: len(self.client.get(path)["items"]) == replicas, 90)

    def condition(self, path: str, kind: str, where: str = "") -> KubeObject:
        """A condition of an object; of the listener `where` if it is given, of the first parent for routes."""
        status = self.client.get(path).get("status") or {}
        if where:
            status = next((one for one in status.get("listeners") or [] if one["name"] == where), {})
        elif "parents" in status:
            status = (status["parents"] or [{}])[0]
        return next((one for one in status.get("conditions") or [] if one["type"] == kind), {})

    def data_folder(self, pod: KubeObject) -> Path:
        return self.world.folder / "pods" / f"{SYSTEM}_{pod['metadata']['name']}" / "volumes/data"

    def status_writes(self) -> list[tuple[str, str, float, int]]:
        """All status writes so far: pod, object, time and response code."""
        log = self.world.cluster.audit_log
        assert log
        found = []
        for line in log.read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                # The last line may be written at this moment.
                continue
            user = event["user"]
            pod = (user.get("extra") or {}).get("authentication.kubernetes.io/pod-name", [user["username"]])[0]
            at = event["objectRef"]
            moment = time.strptime(event["requestReceivedTimestamp"][:19], "%Y-%m-%dT%H:%M:%S")
            fraction = float("0." + re.sub(r"\D", "", event["requestReceivedTimestamp"][20:]))
            name = f"{at['resource']}/{at.get('namespace', '')}/{at['name']}"
            found.append((pod, name, time.mktime(moment) - time.timezone + fraction, event["responseStatus"]["code"]))
        return found


def api_fails(scene: RobustnessScene) -> bool:
    try:
        scene.client.get("/readyz")
        return False
    except (OSError, ApiError, http.client.HTTPException):
        return True

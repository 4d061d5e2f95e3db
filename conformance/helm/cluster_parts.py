"""The parts of the chart's tests that need a cluster: manifests on a real API server, and requests through what they start."""

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import chart
import network
from api import ApiError, KubeObject
from cluster import Cluster, ClusterError
from fixture import ClusterFixture, suite_images, wait_for
from load import LoadTarget, SteadyLoad, responds

# Kinds whose definitions belong to other projects: name, group, version, plural. They are defined without a schema.
FOREIGN = [("ServiceMonitor", "monitoring.coreos.com", "v1", "servicemonitors"),
           ("PodMonitor", "monitoring.coreos.com", "v1", "podmonitors"),
           ("PrometheusRule", "monitoring.coreos.com", "v1", "prometheusrules"),
           ("ScaledObject", "keda.sh", "v1alpha1", "scaledobjects")]
NAMESPACES = [chart.NAMESPACE, "edge"]
SHOP, HOST = "shop", "shop.example"
READY_SECONDS = 120


def run(parts: list[str], binary: Path, logs: Path) -> list[str]:
    """Runs the parts; the failures."""
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    try:
        if "serve" not in parts:
            return _on_control_plane(logs)
        if not network.is_permitted():
            raise ClusterError("serve: network namespaces need root")
        with ClusterFixture(logs, suite_images() | {"yumen": binary}, "standard") as world:
            failures = _timed("manifests", lambda: check_manifests(world.cluster)) if "manifests" in parts else []
            return failures + _serve(world, binary)
    except (ClusterError, ApiError, OSError, subprocess.SubprocessError) as error:
        return [str(error)]


def _on_control_plane(logs: Path) -> list[str]:
    cluster = Cluster(logs / "cluster", dies_with_parent=True)
    try:
        cluster.start()
        cluster.install_crds("standard")
        return _timed("manifests", lambda: check_manifests(cluster))
    finally:
        cluster.stop()


def _timed(name: str, part: Callable[[], list[str]]) -> list[str]:
    begin = time.monotonic()
    failures = part()
    print(f"{time.monotonic() - begin:6.1f} s  {name}: {len(failures) or 'no'} findings", flush=True)
    return failures


def check_manifests(cluster: Cluster) -> list[str]:
    """Every rendering is accepted by the API server with strict validation of fields; nothing is stored."""
    _apply(cluster, [_definition(*one) for one in FOREIGN])
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    # A dry run creates no namespace for the objects in it.
    _apply(cluster, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in NAMESPACES])
    failures = []
    for golden in [*sorted(chart.GOLDENS.glob("*.yaml")), chart.PLAIN]:
        try:
            cluster.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", golden)
        except ClusterError as error:
            failures.append(f"{golden.name}: {error}")
    return failures


def _definition(kind: str, group: str, version: str, plural: str) -> KubeObject:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "versions": [served],
                     "names": {"kind": kind, "plural": plural, "singular": kind.lower()}}}


def _apply(cluster: Cluster, objects: list[KubeObject]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


def _serve(world: ClusterFixture, binary: Path) -> list[str]:
    scene = ServingScene(world, chart.serves_ingresses(binary))
    scene.start()
    failures = []
    checks = (scene.check_daemonset, scene.check_merged, scene.check_ingress_nginx, scene.check_upgrade, scene.check_plain)
    for check in checks:
        begin = time.monotonic()
        try:
            check()
            outcome = "ok"
        except (ClusterError, ApiError, OSError, chart.ChartError) as error:
            outcome = "FAILED"
            failures.append(f"{check.__name__}: {error}")
            with contextlib.suppress(ClusterError, chart.ChartError):
                scene.uninstall("--ignore-not-found")
        print(f"{time.monotonic() - begin:6.1f} s  serve: {check.__name__.removeprefix('check_')}: {outcome}", flush=True)
    return failures


class ServingScene:
    """A shop of one Service in the cluster, and installations of the chart one after the other."""

    def __init__(self, world: ClusterFixture, has_ingress: bool):
        self.world, self.has_ingress = world, has_ingress
        self.client = world.cluster.client()
        self.number = 0

    def start(self) -> None:
        """The shop, its Gateway, its route and an Ingress."""
        container = {"name": "echo", "image": "registry.example/echo-basic:v1",
                     "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
        template = {"metadata": {"labels": {"app": "echo"}}, "spec": {"containers": [container]}}
        backend = {"name": "echo", "port": 80}
        service = {"service": {"name": "echo", "port": {"number": 80}}}
        _apply(self.world.cluster, [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": chart.NAMESPACE}},
            named("apps/v1", "Deployment", "echo", {
                "replicas": 1, "selector": {"matchLabels": {"app": "echo"}}, "template": template}),
            named("v1", "Service", "echo", {"selector": {"app": "echo"}, "ports": [{"port": 80, "targetPort": 3000}]}),
            named("gateway.networking.k8s.io/v1", "Gateway", "shop", {
                "gatewayClassName": "yumen", "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}),
            named("gateway.networking.k8s.io/v1", "HTTPRoute", "shop", {
                "parentRefs": [{"name": "shop"}], "rules": [{"backendRefs": [backend]}]}),
            named("networking.k8s.io/v1", "Ingress", "shop", {"ingressClassName": "nginx", "rules": [{"host": HOST, "http": {
                "paths": [{"path": "/", "pathType": "Prefix", "backend": service}]}}]})])
        self.world.wait_rollout(SHOP, "echo", READY_SECONDS)

    def check_daemonset(self) -> None:
        """A DaemonSet with the network of the node serves a Gateway on port 80 of the node."""
        self.install("daemonset")
        self.world.cluster.kubectl("rollout", "status", "daemonset/yumen", "-n", chart.NAMESPACE, f"--timeout={READY_SECONDS}s")
        wait_for("the Gateway", lambda: responds(LoadTarget(self.pod_address(), 80, HOST)), READY_SECONDS)
        self.uninstall()

    def check_merged(self) -> None:
        """Gateways behind the Service of the chart: a user other than root binds port 80 of the pod."""
        self.install("merged")
        self.world.wait_rollout(chart.NAMESPACE, "yumen", READY_SECONDS)
        address = self.world.balancer_address(chart.NAMESPACE, "yumen", READY_SECONDS)
        wait_for("the Gateway", lambda: responds(LoadTarget(address, 80, HOST)), READY_SECONDS)
        self.uninstall()

    def check_ingress_nginx(self) -> None:
        """A values file of ingress-nginx yields a gateway with its ports, which serves a Gateway and an Ingress."""
        if not self.has_ingress:
            raise ClusterError("this binary serves no Ingresses")
        # The class of an ingress-nginx that still runs.
        owner = {"meta.helm.sh/release-name": "ingress-nginx", "meta.helm.sh/release-namespace": "ingress-nginx"}
        _apply(self.world.cluster, [{"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {
            "name": "nginx", "annotations": owner, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
            "spec": {"controller": "k8s.io/ingress-nginx"}}])
        notes = self.install("ingress-nginx-small")
        for text in ("controller.image: the image", "IngressClass nginx belongs to another release"):
            if text not in notes:
                raise ClusterError(f"the notes lack {text!r}:\n{notes}")
        self.world.wait_rollout(chart.NAMESPACE, "yumen", READY_SECONDS)
        address = self.world.balancer_address(SHOP, "yumen-shop", READY_SECONDS)
        wait_for("the Gateway", lambda: responds(LoadTarget(address, 80, HOST)), READY_SECONDS)
        wait_for("metrics on ingress-nginx's port",
                 lambda: responds(LoadTarget(self.pod_address(), 10254, self.pod_address(), "/metrics")), READY_SECONDS)
        balanced = self.world.balancer_address(chart.NAMESPACE, "yumen", READY_SECONDS)
        wait_for("the Ingress", lambda: responds(LoadTarget(balanced, 80, HOST)), READY_SECONDS)
        wait_for("404 for another host", lambda: responds(LoadTarget(balanced, 80, "other.example", status=404)), READY_SECONDS)
        self.uninstall()

    def check_upgrade(self) -> None:
        """A changed setting replaces the pods without a failed request, and an upgrade back does too."""
        self.install("default")
        self.world.wait_rollout(chart.NAMESPACE, "yumen", READY_SECONDS)
        target = LoadTarget(self.world.balancer_address(SHOP, "yumen-shop", READY_SECONDS), 80, HOST)
        wait_for("the Gateway", lambda: responds(target), READY_SECONDS)
        with SteadyLoad(target) as load:
            for workers in (1, 0):
                self.helm("upgrade", "default", "--set", f"config.workers.count={workers}")
                self.world.wait_rollout(chart.NAMESPACE, "yumen", READY_SECONDS)
        if load.result.failures or not load.result.statuses.total():
            raise ClusterError(f"requests failed during the upgrade: {load.result}: {load.result.failures[:5]}")
        self.uninstall()

    def check_plain(self) -> None:
        """The plain manifests serve a Gateway."""
        self.world.cluster.apply(chart.PLAIN)
        self.world.wait_rollout(chart.NAMESPACE, "yumen", READY_SECONDS)
        address = self.world.balancer_address(SHOP, "yumen-shop", READY_SECONDS)
        wait_for("the Gateway", lambda: responds(LoadTarget(address, 80, HOST)), READY_SECONDS)

    def helm(self, command: str, scenario: str, *args: str) -> str:
        return chart.helm(command, chart.RELEASE, chart.CHART, "--kubeconfig", self.world.cluster.kubeconfig, "--namespace",
                          chart.NAMESPACE, "--values", chart.SCENARIOS / f"{scenario}.yaml", *args)

    def install(self, scenario: str, *args: str) -> str:
        """Installs a scenario; the notes."""
        return self.helm("install", scenario, *args).partition("\nNOTES:\n")[2]

    def uninstall(self, *args: str) -> None:
        """Removes the release and waits for the end of its pods."""
        chart.helm("uninstall", chart.RELEASE, "--kubeconfig", self.world.cluster.kubeconfig, "--namespace", chart.NAMESPACE, *args)
        path = f"/api/v1/namespaces/{chart.NAMESPACE}/pods"
        wait_for("the end of pods", lambda: not self.client.get(path)["items"], READY_SECONDS)

    def pod_address(self) -> str:
        """The address of a pod of the gateway."""
        pods = self.client.get(f"/api/v1/namespaces/{chart.NAMESPACE}/pods")["items"]
        addresses = [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]
        if not addresses:
            raise ClusterError("no pod of the gateway has an address")
        return addresses[0]


def named(version: str, kind: str, name: str, spec: KubeObject) -> KubeObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": SHOP}, "spec": spec}

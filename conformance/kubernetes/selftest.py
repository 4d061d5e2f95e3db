#!/usr/bin/env python3
"""A test of the fixtures without Yumen: pods, EndpointSlices, a load balancer by TCP and UDP, logs, termination.

A Deployment of the suite's echo server behind a Service of type LoadBalancer is scaled 2 -> 3 -> 1 while clients send requests, each
on a connection of its own; none may fail. Needs root. Usage: conformance/kubernetes/selftest.py [--folder FOLDER]
"""

import argparse
import collections
import http.client
import json
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from api import KubeObject
from balancer import UNUSABLE_ADDRESS, USABLE_ADDRESS
from cluster import ClusterError
from fixture import ClusterFixture, check, suite_images, wait_for

NAMESPACE = "selftest"
CLIENTS = 4
PAUSE_SECONDS = 0.01
# Kept open over all changes of the endpoints.
OPEN_CONNECTIONS = 500


def manifests() -> list[KubeObject]:
    """An echo Deployment that leaves its Service before it ends, its Service, and a DNS server for UDP."""
    echo = {"name": "echo", "image": "registry.example/echo-basic:v1", "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}
    dns = {"name": "dns", "image": "registry.example/coredns:v1", "args": ["-conf", "/etc/dns/Corefile"],
           "volumeMounts": [{"name": "conf", "mountPath": "/etc/dns"}]}
    volumes = [{"name": "conf", "configMap": {"name": "dns"}}]
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            named("v1", "ConfigMap", "dns", data={"Corefile": "example.org:53 {\n  whoami\n}\n"}),
            deployment("echo", 2, echo, []), deployment("dns", 1, dns, volumes),
            service("echo", {"name": "http", "port": 80, "targetPort": 3000}),
            service("dns", {"name": "dns", "port": 53, "protocol": "UDP"}),
            service("static", {"port": 80, "targetPort": 3000}, loadBalancerIP=UNUSABLE_ADDRESS, selector={"app": "echo"})]


def named(version: str, kind: str, name: str, **members: object) -> KubeObject:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **members}


def deployment(name: str, replicas: int, container: KubeObject, volumes: list[KubeObject]) -> KubeObject:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "volumes": volumes}}
    return named("apps/v1", "Deployment", name, spec={
        "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template})


def service(name: str, port: KubeObject, **members: object) -> KubeObject:
    return named("v1", "Service", name, spec={"type": "LoadBalancer", "selector": {"app": name}, "ports": [port], **members})


def request(address: str) -> str:
    """The pod that responds to a request on a new connection."""
    connection = http.client.HTTPConnection(address, 80, timeout=5)
    try:
        connection.request("GET", "/selftest")
        reply = connection.getresponse()
        return json.loads(reply.read())["pod"]
    finally:
        connection.close()


class LightLoad:
    """Clients in threads; counts responses by pod and keeps failures."""

    def __init__(self, address: str):
        self.address, self.stopped = address, threading.Event()
        self.by_pod: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self.threads = [threading.Thread(target=self._send) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _send(self) -> None:
        while not self.stopped.wait(PAUSE_SECONDS):
            try:
                self.by_pod[request(self.address)] += 1
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {error!r}")

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


class Stopwatch:
    """Prints the time of each step."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def step(self, name: str) -> None:
        now = time.monotonic()
        print(f"{now - self.last:6.2f} s  {name}", flush=True)
        self.last = now


def check_scaling(world: ClusterFixture, address: str, watch: Stopwatch) -> None:
    """No request fails while pods come and go, and connections outlive the changes."""
    load = LightLoad(address)
    kept = [socket.create_connection((address, 80), 5) for _ in range(OPEN_CONNECTIONS)]
    survivors = {request(address) for _ in range(20)}
    try:
        for replicas in (3, 1):
            world.cluster.kubectl("scale", "deployment/echo", "-n", NAMESPACE, f"--replicas={replicas}")
            world.wait_rollout(NAMESPACE, "echo")
            load.by_pod.clear()
            wait_for(f"responses of {replicas} pods", lambda: pods_of(world) == replicas, 60)
            wait_for("200 requests", lambda: load.by_pod.total() > 200, 60)
            watch.step(f"scaled to {replicas}: {dict(load.by_pod)}")
    finally:
        load.stop()
    check(not load.failures, f"{len(load.failures)} requests failed: {load.failures[:3]}")
    remaining = {request(address) for _ in range(20)}
    check(len(remaining) == 1, f"one pod is left, but {remaining} respond")
    alive = sum(half_close(connection) for connection in kept)
    check(alive > 0 or not remaining & survivors, "no connection outlived the change of the endpoints")
    watch.step(f"{alive} of {OPEN_CONNECTIONS} idle connections outlived the change of the pods and got a response after a half-close")


def half_close(connection: socket.socket) -> bool:
    """Whether a kept connection, half closed after a request, still gets the response."""
    try:
        connection.sendall(b"GET /half HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(5)
        return connection.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
    finally:
        connection.close()


def pods_of(world: ClusterFixture) -> int:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Decho"
    return len(world.cluster.client().get(path)["items"])


def check_udp(world: ClusterFixture, watch: Stopwatch) -> None:
    """A query of DNS through the load balancer."""
    address = world.balancer_address(NAMESPACE, "dns")
    query = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + b"\x07example\x03org\x00" + struct.pack(">2H", 1, 1)

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.settimeout(1)
            try:
                one.sendto(query, (address, 53))
                return one.recv(512)[:2] == query[:2]
            except OSError:
                return False

    wait_for("a response by UDP", ask, 20)
    watch.step("a response by UDP")


def check_static_address(world: ClusterFixture, watch: Stopwatch) -> None:
    """An unusable address stays pending; a usable one is assigned and serves."""
    client = world.cluster.client()
    path = f"/api/v1/namespaces/{NAMESPACE}/services/static"
    check(not client.get(path)["status"]["loadBalancer"], f"{UNUSABLE_ADDRESS} was assigned")
    client.patch(path, {"spec": {"loadBalancerIP": USABLE_ADDRESS}})
    check(world.balancer_address(NAMESPACE, "static") == USABLE_ADDRESS, f"{USABLE_ADDRESS} was not assigned")
    request(USABLE_ADDRESS)
    watch.step("static addresses")


def check_logs(world: ClusterFixture, watch: Stopwatch) -> None:
    """Logs reach the API server, and `sinceTime` limits them."""
    text = world.cluster.kubectl("logs", "-n", NAMESPACE, "deployment/echo", "--since=600s")
    check("Echoing back request made to /selftest" in text, f"the log has no request: {text[-300:]!r}")
    future = world.cluster.kubectl("logs", "-n", NAMESPACE, "deployment/echo", "--since-time=2100-01-01T00:00:00Z")
    check(not future.strip(), "--since-time has no effect")
    watch.step("logs")


def run(folder: Path) -> None:
    watch = Stopwatch()
    with ClusterFixture(folder, suite_images()) as world:
        watch.step("cluster, node and CRDs")
        documents = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests()})
        world.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=documents)
        world.wait_rollout(NAMESPACE, "echo")
        address = world.balancer_address(NAMESPACE, "echo")
        wait_for("a response", lambda: responds(address), 20)
        watch.step(f"2 pods respond at {address}")
        check_scaling(world, address, watch)
        check_udp(world, watch)
        check_static_address(world, watch)
        check_logs(world, watch)
        world.cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=60s")
        watch.step("namespace deleted")
    watch.step("everything removed")


def responds(address: str) -> bool:
    try:
        return bool(request(address))
    except (OSError, http.client.HTTPException):
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description="A test of the fixtures of Kubernetes.")
    parser.add_argument("--folder", type=Path, help="folder for logs, which stays [default: a temporary one]")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="yumen-selftest-") as temporary:
            folder = args.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            run(folder)
    except ClusterError as error:
        sys.exit(f"selftest: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Speed of the Kubernetes controller: from a write to the API server until requests follow it, and the cost of many routes.

A control plane without containers (conformance/kubernetes/cluster.py) holds HTTPRoutes, Services and EndpointSlices whose endpoints are
two servers of this machine. The gateways listen on the Gateway's own port. A change is measured from the response of the API server
until a request that began afterwards follows it; a change that is in force earlier counts as 0. Traefik is measured the same way with its
default configuration and with a throttle of 1 ms, if `scripts/deps.sh lab-traefik` has built it.
Usage: bench/kubernetes.py [--routes 5000] [--changes 200] [--created 3000] [--gateways yumen,traefik,traefik-fast]
"""

import argparse
import http.client
import json
import multiprocessing
import queue
import socket
import socketserver
import ssl
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from gateways import ROOT, YUMEN, Process, free_port

sys.path.insert(0, str(ROOT / "conformance/kubernetes"))
from api import ApiAccess  # noqa: E402
from cluster import Cluster  # noqa: E402

TRAEFIK = Path.home() / ".cache/yumen-lab/bin/traefik"
NAMESPACE = "default"
GROUP = f"/apis/gateway.networking.k8s.io/v1/namespaces/{NAMESPACE}"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
MERGE_PATCH = "application/merge-patch+json"
LOADERS = 4
WAIT_SECONDS = 60


class KeptApi:
    """A kept connection to the API server."""

    def __init__(self, kubeconfig):
        self.access = ApiAccess.read(kubeconfig)
        tls = ssl.create_default_context(cafile=str(self.access.authority))
        self.link = http.client.HTTPSConnection(self.access.host, self.access.port, context=tls, timeout=60)

    def ask(self, method, path, body=None, content="application/json"):
        fields = {"Authorization": f"Bearer {self.access.token}", "Content-Type": content}
        self.link.request(method, path, None if body is None else json.dumps(body), fields)
        reply = self.link.getresponse()
        text = reply.read()
        if reply.status >= 400:
            raise RuntimeError(f"{method} {path}: {reply.status} {text[:300]!r}")
        return json.loads(text)


class Asker:
    """A kept connection to the gateway."""

    def __init__(self, port):
        self.port, self.link = port, None

    def answer(self, path):
        """Status, body and the field that the changed route sets. Status 0: no connection."""
        try:
            self.link = self.link or http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            self.link.request("GET", path)
            reply = self.link.getresponse()
            return reply.status, reply.read().decode(errors="replace"), reply.getheader("x-turn")
        except (OSError, http.client.HTTPException):
            self.link = None
            return 0, "", None

    def wait(self, path, holds):
        """Seconds on the monotonic clock when a response first satisfied the condition."""
        end = time.monotonic() + WAIT_SECONDS
        while not holds(self.answer(path)):
            if time.monotonic() > end:
                raise RuntimeError(f"{path}: the change is not in force after {WAIT_SECONDS} s")
        return time.monotonic()


class EndpointServer(socketserver.ThreadingTCPServer):
    """Responds with its name."""

    allow_reuse_address, daemon_threads = True, True

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while self.rfile.readline():
                while self.rfile.readline() not in (b"\r\n", b"\n", b""):
                    pass
                name = self.server.name
                self.wfile.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(name)}\r\n\r\n{name}".encode())


def host_address():
    """An address of this machine that is not loopback, which the API server refuses in EndpointSlices."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: the kernel chooses the address of the route.
        probe.connect(("198.51.100.1", 9))
        return probe.getsockname()[0]


def serve_endpoints(found):
    """Two endpoints in a process of their own, so that their threads do not delay the measurement."""
    servers = [EndpointServer((HOST_ADDRESS, 0), EndpointServer.Handler) for _ in range(2)]
    for name, server in zip("ab", servers):
        server.name = name
        threading.Thread(target=server.serve_forever, daemon=True).start()
    found.put([server.server_address[1] for server in servers])
    threading.Event().wait()


HOST_ADDRESS = host_address()


def meta(name, **members):
    return {"name": name, "namespace": NAMESPACE, **members}


def service(name):
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta(name),
            "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}


def endpoint_slice(name, port):
    return {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": meta(name, labels={"kubernetes.io/service-name": name}), "ports": [{"name": "http", "port": port}],
            "endpoints": [{"addresses": [HOST_ADDRESS], "conditions": {"ready": True}}]}


def route(name, path, backend, turn=None, parent="bench"):
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [{"name": backend, "port": 80}]}
    if turn is not None:
        rule["filters"] = [{"type": "ResponseHeaderModifier", "responseHeaderModifier": {
            "set": [{"name": "X-Turn", "value": str(turn)}]}}]
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": meta(name),
            "spec": {"parentRefs": [{"name": parent}], "rules": [rule]}}


def create_many(kubeconfig, first, last, port):
    """Routes with a Service and a slice each."""
    api = KeptApi(kubeconfig)
    for number in range(first, last):
        name = f"r{number}"
        api.ask("POST", SERVICES, service(name))
        api.ask("POST", SLICES, endpoint_slice(name, port))
        api.ask("POST", f"{GROUP}/httproutes", route(name, f"/r/{number}/", name))


def run_loaders(kubeconfig, count, port):
    share = -(-count // LOADERS)
    jobs = [multiprocessing.Process(target=create_many, daemon=True,
                                    args=(kubeconfig, at, min(at + share, count), port)) for at in range(0, count, share)]
    for job in jobs:
        job.start()
    return jobs


class Subject:
    """A gateway under test."""

    def __init__(self, name, folder, kubeconfig, options):
        self.name, self.folder, self.kubeconfig = name, folder, kubeconfig
        # Traefik's throttle of 2 s applies to every change.
        few = {"changes": min(options.changes, 20), "created": min(options.created, 20)} if name == "traefik" else {}
        self.options = argparse.Namespace(**{**vars(options), **few})
        self.port, self.process = options.port, None
        self.controller = "gateway.yumen.io/controller" if name == "yumen" else "traefik.io/gateway-controller"

    def start(self):
        run = self._yumen if self.name == "yumen" else self._traefik
        self.process = run(self.folder / f"{self.name}.log")
        return self

    def _yumen(self, log):
        node = self.folder / "yumen.yaml"
        node.write_text(f"kubernetes: {{gateway_mode: merged, namespace: {NAMESPACE}, identity: bench, linger_s: 0}}\n")
        data = tempfile.mkdtemp(dir=self.folder)
        return Process([YUMEN, "run", "--kubernetes", "--kubeconfig", self.kubeconfig, "--config", node, "--workers", 1,
                        "--data-dir", data, "--admin", "127.0.0.1:0", "--status", f"127.0.0.1:{free_port()}"], log, None)

    def _traefik(self, log):
        access = ApiAccess.read(self.kubeconfig)
        provider = "--providers.kubernetesgateway"
        fast = ["--providers.providersthrottleduration=1ms"] if self.name == "traefik-fast" else []
        return Process([TRAEFIK, f"--entrypoints.web.address=127.0.0.1:{self.port}", provider, *fast,
                        f"{provider}.endpoint=https://{access.host}:{access.port}", f"{provider}.token={access.token}",
                        f"{provider}.certauthfilepath={access.authority}", "--log.level=ERROR"], log, None)

    def stop(self):
        if self.process:
            self.process.stop()
            self.process = None


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def shown(values):
    return (f"p50 {statistics.median(values):.1f} ms   p99 {percentile(values, .99):.1f} ms   "
            f"max {max(values):.1f} ms   ({len(values)})")


class Measurement:
    """What is measured of one gateway, in order; every figure is printed at once and kept."""

    def __init__(self, subject, api, ports):
        self.subject, self.api, self.ports, self.figures = subject, api, ports, {}
        self.asker = Asker(subject.port)

    def keep(self, name, text, value):
        self.figures[name] = value
        print(f"{self.subject.name:<13} {name:<42} {text}", flush=True)

    def prepare(self):
        """A class and a Gateway of the subject, one Service and a route."""
        api, port = self.api, self.subject.port
        classes = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
        api.ask("POST", classes, {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
                                  "metadata": {"name": "bench"}, "spec": {"controllerName": self.subject.controller}})
        for name in ("bench", "attach"):
            # Traefik accepts listeners on the ports of its entry points only.
            api.ask("POST", f"{GROUP}/gateways", {
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": meta(name),
                "spec": {"gatewayClassName": "bench", "listeners": [
                    {"name": "web", "protocol": "HTTP", "port": port, "hostname": f"{name}.test"} if name == "attach" else
                    {"name": "web", "protocol": "HTTP", "port": port}]}})
        api.ask("POST", SERVICES, service("marker"))
        api.ask("POST", SLICES, endpoint_slice("marker", self.ports[0]))
        api.ask("POST", f"{GROUP}/httproutes", route("marker", "/marker", "marker", 0))

    def route_changes(self, name, running=lambda: True):
        """Changes of a route, at most as many as wanted and as long as `running` holds."""
        waits, turn = [], 0
        while turn < self.subject.options.changes and running():
            turn += 1
            text = f"{name} {turn}"
            spec = {"spec": route("marker", "/marker", "marker", text)["spec"]}
            self.api.ask("PATCH", f"{GROUP}/httproutes/marker", spec, MERGE_PATCH)
            waits.append(self._wait(lambda reply, text=text: reply[2] == text))
        self.keep(f"route change, {name}", shown(waits), waits)

    def endpoint_changes(self, name, running=lambda: True):
        waits, turn = [], 0
        while turn < self.subject.options.changes and running():
            turn += 1
            body = {"ports": [{"name": "http", "port": self.ports[turn % 2]}]}
            self.api.ask("PATCH", f"{SLICES}/marker", body, MERGE_PATCH)
            waits.append(self._wait(lambda reply, turn=turn: reply[1] == "ab"[turn % 2]))
        self.keep(f"endpoint change, {name}", shown(waits), waits)

    def _wait(self, holds, path="/marker"):
        answered = time.monotonic()
        return (self.asker.wait(path, holds) - answered) * 1e3

    def created_one_by_one(self, count):
        """New routes, each from its creation until it is served."""
        waits = []
        for number in range(count):
            name = f"n{number}"
            self.api.ask("POST", f"{GROUP}/httproutes", route(name, f"/n/{number}/", "marker"))
            waits.append(self._wait(lambda reply: reply[0] == 200, f"/n/{number}/"))
        self.keep("new routes, one after another", shown(waits), waits)

    def start_with_all(self, count):
        """Start until routes from the whole range are served, and the memory afterwards."""
        self.subject.stop()
        begin = time.monotonic()
        self.subject.start()
        asker = Asker(self.subject.port)
        for number in range(0, count, max(1, count // 50)):
            asker.wait(f"/r/{number}/", lambda reply: reply[0] == 200)
        took = time.monotonic() - begin
        self.keep(f"start with {count} routes", f"{took:.2f} s", took)
        time.sleep(3)
        return self.subject.process.rss_kib()

    def attached(self, count):
        """The counter of attached routes, up and down."""
        jobs = [multiprocessing.Process(target=attach_many, args=(self.subject.kubeconfig, at, count, LOADERS))
                for at in range(LOADERS)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        self._await_attached(count, f"{count} attached routes, up")
        self.api.ask("DELETE", f"{GROUP}/httproutes?labelSelector=bench%3Dattached")
        self._await_attached(0, f"{count} attached routes, down")

    def _await_attached(self, count, name):
        begin = time.monotonic()
        while True:
            status = self.api.ask("GET", f"{GROUP}/gateways/attach").get("status") or {}
            if [one.get("attachedRoutes") for one in status.get("listeners") or []] == [count]:
                took = time.monotonic() - begin
                return self.keep(name, f"{took:.2f} s after the last write", took)
            if time.monotonic() - begin > WAIT_SECONDS:
                return self.keep(name, f"not within {WAIT_SECONDS} s: {status.get('listeners')}", None)
            time.sleep(0.02)

    def run(self):
        options = self.subject.options
        self.prepare()
        self.subject.start()
        self.asker.wait("/marker", lambda reply: reply[0] == 200)
        time.sleep(3)
        empty = self.subject.process.rss_kib()
        self.route_changes("idle")
        self.endpoint_changes("idle")
        jobs = run_loaders(self.subject.kubeconfig, options.routes, self.ports[0])
        begin = time.monotonic()
        is_loading = lambda: any(job.is_alive() for job in jobs)  # noqa: E731
        self.route_changes("while routes are created", is_loading)
        self.endpoint_changes("while routes are created", is_loading)
        for job in jobs:
            job.join()
        print(f"{self.subject.name:<13} {options.routes} routes created in {time.monotonic() - begin:.0f} s", flush=True)
        last = options.routes - 1
        self.keep("last route after its creation", f"{self._wait(lambda reply: reply[0] == 200, f'/r/{last}/'):.1f} ms", None)
        self.route_changes(f"beside {options.routes} routes")
        self.endpoint_changes(f"beside {options.routes} routes")
        full = self.start_with_all(options.routes)
        self.keep("memory", f"{(full - empty) / 1024:.1f} MiB above {empty / 1024:.1f} MiB", full - empty)
        self.attached(options.attached)
        self.created_one_by_one(options.created)


def attach_many(kubeconfig, first, count, step):
    api = KeptApi(kubeconfig)
    for number in range(first, count, step):
        body = route(f"a{number}", f"/a/{number}/", "marker", parent="attach")
        body["metadata"]["labels"] = {"bench": "attached"}
        api.ask("POST", f"{GROUP}/httproutes", body)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--routes", type=int, default=5000)
    parser.add_argument("--changes", type=int, default=200, help="changes of each kind")
    parser.add_argument("--created", type=int, default=3000, help="routes that are created one after another")
    parser.add_argument("--attached", type=int, default=1000)
    parser.add_argument("--gateways", default="yumen,traefik,traefik-fast")
    parser.add_argument("--json", type=Path, help="keep all figures in this file")
    options = parser.parse_args()
    options.port = free_port()
    found = multiprocessing.Queue()
    multiprocessing.Process(target=serve_endpoints, args=(found,), daemon=True).start()
    try:
        ports = found.get(timeout=10)
    except queue.Empty:
        sys.exit("the endpoints do not start")
    kept = {}
    for name in options.gateways.split(","):
        if name.startswith("traefik") and not TRAEFIK.exists():
            print(f"{name}: {TRAEFIK} is missing: scripts/deps.sh lab-traefik builds it")
            continue
        with tempfile.TemporaryDirectory(prefix="yumen-kubernetes-") as folder:
            # A cluster of its own, because the objects of the previous gateway would load the API server.
            cluster = Cluster(Path(folder) / "cluster", dies_with_parent=True)
            cluster.start()
            subject = Subject(name, Path(folder), cluster.kubeconfig, options)
            try:
                cluster.install_crds("experimental")
                measurement = Measurement(subject, KeptApi(cluster.kubeconfig), ports)
                measurement.run()
                kept[name] = measurement.figures
            except RuntimeError:
                print((Path(folder) / f"{name}.log").read_text(errors="replace")[-2000:], file=sys.stderr)
                raise
            finally:
                subject.stop()
                cluster.stop()
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()

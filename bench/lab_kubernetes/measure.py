"""One round: a gateway is started, loaded at a constant rate while a scenario runs, observed, and stopped."""

import http.client
import json
import os
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from api import KubeObject
from fixture import wait_for
from gateways import Process, free_port
from systems import LabSystem
from watch_relay import RelayProcess
from world import HOST, PATH, ReplicaPlan, ShopWorld

START_SECONDS = 60
SAMPLE_SECONDS = 1.0
WARMUP_SECONDS = 3
# The nice value of the generator: the cluster shares its processors and must not delay it.
GENERATOR_NICE = -10
# Time for the last change of a churn to be served.
CHURN_WAIT_SECONDS = 30


@dataclass
class LabCase:
    """A scenario."""

    name: str
    label: str
    # Replicas before and after each change; no changes if both are equal.
    replicas: tuple[int, int]
    is_killed: bool = False
    # Ingresses beside that of the shop, and how many of them change in each second.
    many: int = 0
    changes_per_second: int = 0


@dataclass
class RoundResult:
    """What one round measured, as members of the record."""

    summary: KubeObject
    usage: KubeObject
    marks: list[KubeObject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def cpu_ns(pids: list[int]) -> dict[tuple[int, str], int]:
    """Processor time by thread."""
    found = {}
    for pid in pids:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                text = Path(f"/proc/{pid}/task/{task}/schedstat").read_text()
                found[pid, task] = int(text.split()[0])
        except OSError:
            continue
    return found


def machine_ticks() -> tuple[int, int]:
    """Stolen and total ticks of all processors."""
    values = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return values[7], sum(values)


class PartMeter:
    """Processor time and memory of one part during a round."""

    def __init__(self, pids, cpus: int, rss_kib=None):
        self.pids, self.cpus, self.rss_kib = pids, cpus, rss_kib
        self.before = self.last = cpu_ns(pids())
        self.samples: list[KubeObject] = []
        self.used = 0
        self.begin = self.at = time.monotonic()

    def look(self) -> None:
        now = time.monotonic()
        # Threads that have ended keep their last value.
        self.last = {**self.last, **cpu_ns(self.pids())}
        used = sum(ns - self.before.get(thread, 0) for thread, ns in self.last.items())
        self.samples.append({"at_ms": round((now - self.begin) * 1000), "cpus": (used - self.used) / ((now - self.at) * 1e9),
                             "rss_bytes": self.rss_kib() * 1024 if self.rss_kib else 0})
        self.used, self.at = used, now

    def usage(self, requests: int) -> KubeObject:
        return {"cpus": self.cpus, "cpu_ns": self.used, "cpus_peak": max((one["cpus"] for one in self.samples), default=0.0),
                "cpu_ns_per_request": self.used / requests if requests else 0.0,
                "rss_bytes_max": max((one["rss_bytes"] for one in self.samples), default=0), "samples": self.samples}


class LabRound:
    """Runs one round."""

    def __init__(self, world: ShopWorld, system: LabSystem, case: LabCase, options, folder: Path):
        self.world, self.system, self.case, self.options, self.folder = world, system, case, options, folder
        self.port = free_port()
        self.notes: list[str] = []

    def run(self) -> RoundResult:
        self.folder.mkdir(parents=True)
        cluster, case = self.world.fixture.cluster, self.case
        relay, many = None, []
        try:
            if case.many:
                many = self.world.create_many(self.system.name, case.many)
                relay = RelayProcess(cluster.kubeconfig, self.folder, self.options.other_cores)
            kubeconfig = relay.kubeconfig if relay else cluster.kubeconfig
            # A change of an Ingress is work of the control plane, which runs beside the workers.
            cores = sorted(os.sched_getaffinity(0)) if case.many else self.options.gateway_cores
            gateway = self.system.start(self.folder, kubeconfig, self.port, cores)
            try:
                self._await(gateway)
                return self._load(gateway, relay, many)
            finally:
                gateway.stop()
        finally:
            if relay:
                relay.stop()
            if many:
                self.world.delete_many()
            self.world.scale(case.replicas[0])
            self.world.settle(case.replicas[0])

    def _await(self, gateway: Process) -> None:
        alive = lambda: gateway.child.poll() is None  # noqa: E731
        wait_for(f"{self.system.name} (log: {self.folder}/log)", lambda: responds(self.port, self.world.certificate),
                 START_SECONDS, alive)
        # All that was there at the start is in force.
        time.sleep(2)

    def _load(self, gateway: Process, relay: RelayProcess | None, many: list[KubeObject]) -> RoundResult:
        self._prefer_generator()
        out, seconds = self.folder / "load.json", self.options.seconds
        gateway_meter = PartMeter(gateway.pids, len(self.options.gateway_cores), gateway.rss_kib)
        load = self._generator(out)
        generator_meter = PartMeter(lambda: [load.pid], len(self.options.other_cores))
        upstream_meter = PartMeter(self.world.programs, len(self.options.other_cores))
        meters = (gateway_meter, upstream_meter, generator_meter)
        stolen, ticks = machine_ticks()
        # The generator connects first, which takes a moment with 1000 TLS handshakes.
        self._await_connections(load)
        begin = time.monotonic() + WARMUP_SECONDS
        plan = ReplicaPlan(self.world, self.case.replicas, self.options.stay, self.case.is_killed)
        thread = threading.Thread(target=plan.run, args=(begin, seconds), daemon=True)
        if self.case.replicas[0] != self.case.replicas[1]:
            thread.start()
        if relay and self.case.changes_per_second:
            relay.begin(many, self.case.changes_per_second)
            plan.marks.append({"at_ms": 0, "what": f"{self.case.changes_per_second} Ingresses per second", "took_ms": 0.0,
                               "effective_ms": None, "error": None})
        end = time.monotonic() + seconds + WARMUP_SECONDS + 60
        while load.poll() is None and time.monotonic() < end:
            time.sleep(SAMPLE_SECONDS)
            for meter in meters:
                meter.look()
        if load.poll() is None:
            load.kill()
        load.wait()
        if thread.is_alive():
            thread.join(60)
        if relay and self.case.changes_per_second:
            self._finish_churn(relay, plan.marks)
        stolen_after, ticks_after = machine_ticks()
        summary = json.loads(out.read_text())
        requests = summary["requests"]
        usage = {"gateway": gateway_meter.usage(requests), "upstream": upstream_meter.usage(requests),
                 "generator": generator_meter.usage(requests), "stolen": (stolen_after - stolen) / max(1, ticks_after - ticks)}
        return RoundResult(summary, usage, plan.marks, self.notes)

    def _generator(self, out: Path) -> subprocess.Popen[bytes]:
        options = self.options
        threads = min(2, len(options.other_cores))
        args = ["nice", "-n", GENERATOR_NICE, "taskset", "-c", ",".join(map(str, options.other_cores)), options.bench, "load",
                f"https://127.0.0.1:{self.port}{PATH}", "--server-name", HOST, "-H", f"Host: {HOST}", "-c", options.connections,
                "-t", threads, "-R", options.rate, "-d", f"{options.seconds}s", "--warmup", f"{WARMUP_SECONDS}s",
                "--good-statuses", "200-299", "--timeout", "5s", "--connect-timeout", "5s", "--json", out]
        log = open(self.folder / "load.log", "wb")
        return subprocess.Popen([str(arg) for arg in args], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _prefer_generator(self) -> None:
        """Replicas run as before the cluster was made nice."""
        for pid in self.world.programs():
            try:
                os.setpriority(os.PRIO_PROCESS, pid, 0)
            except OSError:
                continue

    def _await_connections(self, load: subprocess.Popen[bytes]) -> None:
        """Waits until the generator has all its connections, so that steps of the scenario begin with the requests."""
        end = time.monotonic() + 30
        while load.poll() is None and time.monotonic() < end:
            if self._established(load.pid) >= self.options.connections:
                return
            time.sleep(0.02)

    def _established(self, pid: int) -> int:
        remote = f":{self.port:04X} 01"
        try:
            return Path(f"/proc/{pid}/net/tcp").read_text().count(f"0100007F{remote}")
        except OSError:
            return 0

    def _finish_churn(self, relay: RelayProcess, marks: list[KubeObject]) -> None:
        """Ends the changes and measures when the last one is served."""
        last = relay.finish()
        begin = time.monotonic()
        mark = marks[-1]
        mark["what"] = f"{last['sent']} changes of Ingresses, {last['per_second']:.0f} per second"
        while not is_routed(self.port, last["host"], last["path"]):
            if time.monotonic() - begin > CHURN_WAIT_SECONDS:
                mark["error"] = f"the last change is not in force {CHURN_WAIT_SECONDS} s after its event"
                return
            time.sleep(0.002)
        mark["effective_ms"] = (time.monotonic() - begin) * 1000


def responds(port: int, authority: Path) -> bool:
    """Whether the shop answers through the gateway, with its certificate."""
    tls = ssl.create_default_context(cafile=str(authority))
    return ask(port, tls, HOST, PATH) == 200


def is_routed(port: int, host: str, path: str) -> bool:
    """Whether a route answers; replicas answer every path, and gateways answer 404 without a route. The certificate is not that
    of the host."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return ask(port, tls, host, path) == 200


def ask(port: int, tls: ssl.SSLContext, host: str, path: str) -> int:
    """The status of a request on a new connection; 0 if there is none."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as plain, tls.wrap_socket(plain, server_hostname=host) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            reply = http.client.HTTPResponse(stream)
            reply.begin()
            return reply.status
    except (OSError, http.client.HTTPException):
        return 0

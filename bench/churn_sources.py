"""Sources of endpoint changes for bench/churn.py: start of a gateway with each, and its writer.

A writer is a separate process on the load's core that only runs when the core is idle (SCHED_IDLE).
"""

import base64
import json
import multiprocessing
import os
import shutil
import socket
import threading
import time
from types import SimpleNamespace

import admin as single
from gateways import GATEWAY_CORE, LOAD_CORE, Process, free_port, run_yumen

UPSTREAMS, PORTS, ENDPOINTS = 200, 10, 5
SERVICES = 50


def yield_to_all():
    """Runs first in a child: moves it to the load's core, with idle priority."""
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def chosen(ports, at, turn, count=ENDPOINTS):
    """The endpoints of an upstream after this number of changes: each replaces one port with another."""
    return {f"127.0.0.1:{ports[(at + turn + one) % len(ports)]}": 1 for one in range(count)}


def upstream(ports, at, turn):
    return {"type": "roundrobin", "nodes": chosen(ports, at, turn)}


def routes(count):
    """The pair (id, object)."""
    return [(f"r{at}", {"uri": f"/r/{at}", "upstream_id": f"u{at % UPSTREAMS}"}) for at in range(count)]


class Link:
    """A kept connection that sends prepared requests and only parses the lengths of responses."""

    def __init__(self, port):
        self.stream = socket.create_connection(("127.0.0.1", port))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def ask(self, method, path, body, fields=""):
        text = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\n{fields}Content-Length: {len(text)}\r\n\r\n"
        self.stream.sendall(head.encode() + text)
        while b"\r\n\r\n" not in self.rest:
            self.more()
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), None)
        body = b""
        if length is None:
            while not self.rest.endswith(b"0\r\n\r\n"):
                self.more()
            body, self.rest = self.rest, b""
        else:
            while len(self.rest) < length:
                self.more()
            body, self.rest = self.rest[:length], self.rest[length:]
        assert head[9:12] in (b"200", b"201"), (head, body)
        return body

    def more(self):
        got = self.stream.recv(65536)
        assert got, "the connection was closed"
        self.rest += got


class Writer:
    """A process that calls `step(state, turn)` at a constant rate until stopped; returns the number of changes."""

    def __init__(self, prepare, step, changes_per_step, rate, hands=1):
        self.stop, self.made = multiprocessing.Event(), multiprocessing.Value("l", 0)
        self.process = multiprocessing.Process(
            target=self.work, args=(prepare, step, changes_per_step, rate, hands), daemon=True)
        self.process.start()

    def work(self, prepare, step, changes_per_step, rate, hands):
        yield_to_all()
        begin, pause = time.monotonic(), changes_per_step / rate

        def hand(which):
            state, turn = prepare(), which
            while not self.stop.is_set():
                left = begin + turn * pause - time.monotonic()
                if left > 0:
                    time.sleep(left)
                step(state, turn)
                turn += hands
                with self.made.get_lock():
                    self.made.value += changes_per_step

        workers = [threading.Thread(target=hand, args=(which,), daemon=True) for which in range(hands)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def end(self):
        self.stop.set()
        self.process.join(10)
        return self.made.value


class ChangeSource:
    """Common parts of all sources."""

    # Target of a writer without a gateway that follows it, if the source supports that.
    nobody = None

    def __init__(self, folder):
        self.folder, self.others = folder, []

    def start(self, ports):
        self.ports = ports

    def stop(self):
        for process in self.others:
            process.stop()


def start_etcd(folder, core=LOAD_CORE):
    """A single member with low priority."""
    port, peer = free_port(), free_port()
    url, own = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    args = ["chrt", "--idle", "0", shutil.which("etcd"), "--name", "m0", "--data-dir", folder / "etcd", "--listen-client-urls", url,
            "--advertise-client-urls", url, "--listen-peer-urls", own, "--initial-advertise-peer-urls", own,
            "--initial-cluster", f"m0={own}", "--log-level", "error"]
    member = Process(args, folder / "etcd.log", core)
    member.wait_listening(port)
    member.port = port
    return member


def key_value(prefix, kind, name, value):
    coded = lambda text: base64.b64encode(text.encode()).decode()
    return {"key": coded(f"{prefix}/{kind}/{name}"), "value": coded(json.dumps({"id": name, **value}))}


class Etcd(ChangeSource):
    """Keys written by another program, several in a transaction."""

    keys, hands = 20, 2
    nobody = SimpleNamespace(prefix="/nobody")

    def start(self, ports):
        super().start(ports)
        self.etcd = start_etcd(self.folder)
        self.others.append(self.etcd)

    def gateway(self, own, count):
        prefix = f"/{own.name}"
        objects = [("upstreams", f"u{at}", upstream(self.ports, at, 0)) for at in range(UPSTREAMS)]
        objects += [("routes", name, route) for name, route in routes(count)]
        link = Link(self.etcd.port)
        for at in range(0, len(objects), 100):
            self.put(link, [key_value(prefix, *one) for one in objects[at:at + 100]])
        (own / "yumen.yaml").write_text(
            f"store: {{kind: etcd, data_dir: {own}/data, "
            f"etcd: {{host: ['http://127.0.0.1:{self.etcd.port}'], prefix: '{prefix}'}}}}\n")
        node = run_yumen(own / "log", "--config", own / "yumen.yaml", core=GATEWAY_CORE)
        node.wait_listening(node.http, 60)
        node.prefix = prefix
        return node

    @staticmethod
    def put(link, pairs):
        if len(pairs) == 1:
            return link.ask("POST", "/v3/kv/put", pairs[0])
        return link.ask("POST", "/v3/kv/txn", {"success": [{"requestPut": one} for one in pairs]})

    def write(self, gateway, options):
        def step(link, turn):
            first = turn * self.keys
            self.put(link, [key_value(gateway.prefix, "upstreams", f"u{at % UPSTREAMS}",
                                      upstream(self.ports, at, 1 + at // UPSTREAMS))
                            for at in range(first, first + self.keys)])

        return Writer(lambda: Link(self.etcd.port), step, self.keys, options.changes, self.hands)


class EtcdPuts(Etcd):
    """One key at a time."""

    keys, hands = 1, 8


class Patch(ChangeSource):
    """The Admin API of an embedded store, one upstream's nodes at a time."""

    hands = 8

    def gateway(self, own, count):
        gateway = run_yumen(own / "log", "--data-dir", own / "data", core=GATEWAY_CORE)
        gateway.wait_listening(gateway.admin)
        gateway.fields = f"X-API-KEY: {single.key_of([own / 'log'])}\r\n"
        link, all_routes = Link(gateway.admin), routes(count)
        ups = [{"id": f"u{at}", **upstream(self.ports, at, 0)} for at in range(UPSTREAMS)]
        self.apply(link, gateway, {"upstreams": ups})
        for at in range(0, count, 2000):
            self.apply(link, gateway, {"routes": [{"id": name, **one} for name, one in all_routes[at:at + 2000]]})
        return gateway

    @staticmethod
    def apply(link, gateway, document):
        link.ask("POST", "/yumen/v1/apply", {"put": document}, gateway.fields)

    def write(self, gateway, options):
        def step(link, turn):
            nodes = chosen(self.ports, turn, 1 + turn // UPSTREAMS)
            link.ask("PATCH", f"/apisix/admin/upstreams/u{turn % UPSTREAMS}/nodes", nodes, gateway.fields)

        return Writer(lambda: Link(gateway.admin), step, 1, options.changes, self.hands)


class Apply(Patch):
    """Fifty upstreams in one transaction."""

    def write(self, gateway, options):
        def step(link, turn):
            ups = [{"id": f"u{at % UPSTREAMS}", **upstream(self.ports, at, 1 + at // UPSTREAMS)}
                   for at in range(turn * 50, turn * 50 + 50)]
            self.apply(link, gateway, {"upstreams": ups})

        return Writer(lambda: Link(gateway.admin), step, 50, options.changes)


class Writes(Patch):
    """Routes by the Admin API, ten per second or `--changes`: the question of issue 3."""

    def write(self, gateway, options):
        def step(link, turn):
            link.ask("PUT", f"/apisix/admin/routes/churn{turn % 50}",
                     {"uri": f"/churn/{turn}", "upstream_id": f"u{turn % UPSTREAMS}"}, gateway.fields)

        return Writer(lambda: Link(gateway.admin), step, 1, options.changes)


class Watched(ChangeSource):
    """The watched file, rewritten once per second with all changes."""

    def document(self, count, turn):
        lines = ["upstreams:"]
        lines += ["  - " + json.dumps({"id": f"u{at}", **upstream(self.ports, at, turn * ENDPOINTS)}) for at in range(UPSTREAMS)]
        lines.append("routes:")
        lines += ["  - " + json.dumps({"id": name, **one}) for name, one in routes(count)]
        return "\n".join(lines) + "\n#END\n"

    def gateway(self, own, count):
        place = own / "routes.yaml"
        place.write_text(self.document(count, 0))
        gateway = run_yumen(own / "log", "--file", place, "--data-dir", own / "data", core=GATEWAY_CORE)
        gateway.wait_listening(gateway.http, 60)
        gateway.routes = place
        return gateway

    def write(self, gateway, options):
        count = options.routes
        texts = [self.document(count, turn) for turn in range(2)]

        def step(_, turn):
            draft = gateway.routes.with_suffix(".new")
            draft.write_text(texts[(turn + 1) % 2])
            draft.replace(gateway.routes)

        changes = UPSTREAMS * ENDPOINTS
        return Writer(lambda: None, step, changes, options.changes)


class Consul(ChangeSource):
    """Services of a Consul with blocking queries; each result differs in four endpoints from the previous one."""

    changed = 4

    def gateway(self, own, count):
        # An agent per gateway, so that only one of them has changes.
        agent = Agent(self.ports)
        place = own / "routes.yaml"
        lines = ["upstreams:"]
        lines += ["  - " + json.dumps({"id": f"u{at}", "type": "roundrobin", "discovery_type": "consul",
                                       "service_name": f"s{at % SERVICES}"}) for at in range(UPSTREAMS)]
        lines.append("routes:")
        lines += ["  - " + json.dumps({"id": name, **one}) for name, one in routes(count)]
        place.write_text("\n".join(lines) + "\n#END\n")
        (own / "yumen.yaml").write_text(f"discovery: {{consul: {{servers: ['http://127.0.0.1:{agent.port}']}}}}\n")
        gateway = run_yumen(own / "log", "--file", place, "--data-dir", own / "data", "--config", own / "yumen.yaml",
                            core=GATEWAY_CORE)
        gateway.wait_listening(gateway.http, 60)
        gateway.agent = agent
        self.others.append(agent)
        time.sleep(3)
        return gateway

    def write(self, gateway, options):
        return gateway.agent.work(self.changed, options.changes)


class Agent:
    """Consul's health endpoint, for services that only exist here."""

    def __init__(self, ports):
        self.ports, self.port = ports, free_port()
        self.rate, self.made = multiprocessing.Value("d", 0), multiprocessing.Value("l", 0)
        self.child = multiprocessing.Process(target=self.serve, daemon=True)
        self.child.start()

    def work(self, changed, rate):
        """Changes endpoints at this rate until the end; runs in the writer."""
        self.made.value, self.rate.value = 0, rate / changed
        return self

    def end(self):
        self.rate.value = 0
        return self.made.value * Consul.changed

    def stop(self):
        self.child.terminate()
        self.child.join()

    def serve(self):
        yield_to_all()
        self.turns, self.moved = [1] * SERVICES, [threading.Condition() for _ in range(SERVICES)]
        listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
        threading.Thread(target=self.change, daemon=True).start()
        while True:
            stream = listener.accept()[0]
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

    def change(self):
        at, due = 0, time.monotonic()
        while True:
            if not self.rate.value:
                time.sleep(0.05)
                due = time.monotonic()
                continue
            due += 1 / self.rate.value
            time.sleep(max(0, due - time.monotonic()))
            with self.moved[at]:
                self.turns[at] += 1
                self.moved[at].notify_all()
            at = (at + 1) % SERVICES

    def answer(self, stream):
        rest = b""
        while True:
            while b"\r\n\r\n" not in rest:
                got = stream.recv(65536)
                if not got:
                    return
                rest += got
            head, _, rest = rest.partition(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            at = int(path.split("/v1/health/service/s")[1].split("?")[0])
            asked = path.split("index=")[1].split("&")[0] if "index=" in path else 0
            with self.moved[at]:
                self.moved[at].wait_for(lambda: self.turns[at] != int(asked), 30)
                turn = self.turns[at]
            if int(asked) and turn != int(asked):
                with self.made.get_lock():
                    self.made.value += 1
            nodes = [{"Node": {"Address": "127.0.0.1"}, "Service": {"Address": "127.0.0.1", "Port": port, "Meta": {},
                      "Weights": {"Passing": 1, "Warning": 1}}, "Checks": [{"Status": "passing"}]}
                     for port in (self.ports[(at + turn * Consul.changed + one) % len(self.ports)] for one in range(ENDPOINTS))]
            body = json.dumps(nodes).encode()
            stream.sendall(f"HTTP/1.1 200 OK\r\nX-Consul-Index: {turn}\r\nContent-Type: application/json\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


SOURCES = {"etcd": Etcd, "etcd-puts": EtcdPuts, "patch": Patch, "apply": Apply, "file": Watched, "consul": Consul,
         "writes": Writes}

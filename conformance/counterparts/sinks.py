"""The proof of a logger against its server: entries whole, none forged, the server restarted and frozen. No counterpart itself."""

import contextlib
import http.client
import json
import re
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from scene import Failure, Gateway, Scene, Server, expect, wait_for

# The form of entries in these proofs. Every request has an id of its own, in the field X-Id and in its query.
FORMAT = {"id": "$http_x_id", "uri": "$uri", "target": "$real_request_uri", "agent": "$http_user_agent", "method": "$request_method",
          "status": "$status"}
BATCH = {"batch_max_size": 20, "inactive_timeout": 1, "buffer_duration": 2}
# Small, so that a server that is away for seconds reaches the bound.
PENDING_MAX = 300
RESULTS = ("sent", "dropped_full", "dropped_failed", "dropped_stop")


@dataclass
class Sink:
    """One route whose requests are logged to a server."""

    route: str
    plugin: str
    settings: dict
    # All entries of the route that the server has, each with the members of FORMAT that it keeps.
    read: Callable[[], list[dict]]
    # Whether the server confirms entries: those that count as sent are then on the server.
    confirms: bool = True
    # Whether the transport may lose entries while nothing is wrong with the server: datagrams to a full socket.
    lossless: bool = True
    # Members that the server keeps.
    members: tuple = ("id", "uri", "target", "agent", "method", "status")
    # Whether the target in entries is the decoded path and the query, as in the default form and in spans.
    decodes: bool = False
    # Whether the server has its entries after a restart.
    survives: bool = True
    # Entries that wait for the server at most.
    pending_max: int = PENDING_MAX
    form: dict = field(default_factory=lambda: {"log_format": FORMAT})

    def route_object(self, upstream: int) -> dict:
        return {"id": self.route, "uri": f"/{self.route}/*", "plugins": {self.plugin: {**BATCH, **self.form, **self.settings}},
                "upstream": {"nodes": {f"127.0.0.1:{upstream}": 1}}}


def resources(sinks: list[Sink], upstream: int, more: list[dict] = ()) -> dict:
    """Routes and metadata of the sinks. `more` are further objects of metadata."""
    metadata = {plugin: {"id": plugin, "max_pending_entries": PENDING_MAX} for plugin in {sink.plugin for sink in sinks}}
    for item in more:
        metadata[item["id"]] = {**metadata.get(item["id"], {}), **item}
    return {"routes": [sink.route_object(upstream) for sink in sinks], "plugin_metadata": list(metadata.values())}


def settled(gateway: Gateway, sink: Sink) -> dict:
    """Entries of the plugin by result. Sinks of one proof have different plugins, or share the figures."""
    return {result: gateway.metric("yumen_sink_entries_total", plugin=sink.plugin, result=result) for result in RESULTS}


def waiting(gateway: Gateway) -> float:
    return gateway.metric("yumen_sink_waiting_entries")


def wait_drained(gateway: Gateway, seconds: float):
    # The gauge is that of the queue; a batch on its way is in it.
    wait_for(lambda: waiting(gateway) == 0, seconds, "no entry waits")


def by_id(entries: list[dict], prefix: str) -> Counter:
    return Counter(str(entry.get("id")) for entry in entries if str(entry.get("id")).startswith(prefix))


class Load:
    """Requests at a rate over the routes in turn, each with an id of its own: PREFIX-ROUTE-NUMBER."""

    def __init__(self, gateway: Gateway, routes: list[str], prefix: str, rate: float = 200):
        self.gateway, self.routes, self.prefix, self.rate = gateway, routes, prefix, rate
        self.sent, self.latencies, self.faults = Counter(), [], []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=20)
        begin, number = time.monotonic(), 0
        while not self.ending.is_set():
            # Open loop: a slow response does not thin out the requests after it.
            due = begin + number / self.rate
            if (pause := due - time.monotonic()) > 0:
                time.sleep(pause)
            route = self.routes[number % len(self.routes)]
            number += 1
            at, key = time.monotonic(), f"{self.prefix}-{route}-{number}"
            try:
                connection.request("GET", f"/{route}/{number}?id={key}", headers={"X-Id": key})
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    self.faults.append(f"status {response.status}")
            except OSError as error:
                self.faults.append(str(error))
                connection.close()
            self.sent[route] += 1
            self.latencies.append(time.monotonic() - at)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join(30)

    def check(self) -> str:
        """Fails if a request suffered. The bound is far below the time-outs of sinks."""
        expect(not self.faults, f"{len(self.faults)} of {len(self.latencies)} requests failed: {self.faults[:2]}")
        p99 = statistics.quantiles(self.latencies, n=100)[98]
        expect(p99 < 0.5, f"p99 of the requests is {p99 * 1000:.0f} ms")
        return f"{len(self.latencies)} requests, p50 {statistics.median(self.latencies) * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms"


def check_whole(scene: Scene, gateway: Gateway, sinks: list[Sink], count: int = 100):
    """N requests are N entries with their members."""
    for sink in sinks:
        with scene.case(f"{sink.route}: {count} requests are {count} entries with the right members"):
            prefix = f"whole-{sink.route}-"
            before = settled(gateway, sink)
            for number in range(count):
                status, _, _ = gateway.get(f"/{sink.route}/{number}?id={prefix}{number}",
                                              {"X-Id": f"{prefix}{number}", "User-Agent": "proof"})
                expect(status == 200, f"status {status}")
            wait_for(lambda: settled(gateway, sink)["sent"] - before["sent"] >= count, 15, "all entries are sent")
            wait_for(lambda: len(by_id(sink.read(), prefix)) >= count, 15, "the server has all entries")
            found = [entry for entry in sink.read() if str(entry.get("id")).startswith(prefix)]
            expect(len(found) == count, f"the server has {len(found)} entries")
            for entry in found:
                number = entry["id"].removeprefix(prefix)
                wanted = {"id": entry["id"], "uri": f"/{sink.route}/{number}", "target": f"/{sink.route}/{number}?id={entry['id']}", "agent": "proof",
                          "method": "GET", "status": "200"}
                for member in sink.members:
                    got = str(entry.get(member))
                    expect(got == wanted[member], f"{entry['id']}: {member} is {got!r}, not {wanted[member]!r}")


# Name, target behind the route, bytes of User-Agent, and the agent in the entry (None: the request may be refused).
HOSTILE = [
    ("newline", "/a%0d%0a%3c46%3e1%20-%20forged%20apisix%20-%20-%20-%20%7b%22id%22:%22forged%22%7d", b"a", "a"),
    ("nul", "/a%00b", b"a", None),
    ("quotes", "/%22%7d%5d%7d%0a%7b%22id%22:%22forged%22%7d", b'"},{"id":"forged"}', '"},{"id":"forged"}'),
    ("backslash", "/a%5c", b"\\", "\\"),
    ("utf-8", "/gr%c3%bcn/%e6%97%a5%e6%9c%ac", "grün 日本 😀".encode(), "grün 日本 😀"),
    ("separators", "/%e2%80%a8%c2%85", "a\u2028b\u0085c".encode(), "a\u2028b\u0085c"),
    ("not utf-8", "/%ff%fe", b"a\xff\xc3b", "a\ufffd\ufffdb"),
    ("tab", "/%09", b"a\tb", "a\tb"),
    ("braces", "/$request_uri%7b%25Y%7d", b"$uri {%Y} %n ${jndi:x}", "$uri {%Y} %n ${jndi:x}"),
    ("long", "/" + "l" * 3000, b"x" * 3000, "x" * 3000),
    ("escape", "/%1b%5b31m", b"a\x1b[31mb", None),
    ("del", "/%7f", b"a\x7fb", None),
    ("carriage return", "/a", b"a\rb", None),
]


def check_injection(scene: Scene, gateway: Gateway, sinks: list[Sink]):
    """A request is at most one entry, whatever its bytes are."""
    for sink in sinks:
        with scene.case(f"{sink.route}: hostile bytes make no second entry and change none"):
            wanted = {}
            for number, (name, target, agent, text) in enumerate(HOSTILE):
                key = f"hostile-{sink.route}-{number}"
                status = gateway.send(f"GET /{sink.route}{target}?id={key} HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nX-Id: {key}\r\n"
                                      "User-Agent: ".encode() + agent + b"\r\n\r\n")
                expect(status in (200, 400), f"{name}: status {status}")
                expect(status == 200 or text is None, f"{name}: status {status}")
                if status == 200:
                    wanted[key] = (name, f"/{sink.route}{target}?id={key}", text)
            wait_drained(gateway, 25)
            with contextlib.suppress(Failure):
                wait_for(lambda: len(by_id(sink.read(), f"hostile-{sink.route}-")) >= len(wanted), 10, "all entries")
            entries = sink.read()
            expect(not [entry for entry in entries if "forged" in str(entry.get("id"))], "a forged entry")
            expect(not [entry for entry in entries if not entry.get("id")], f"an entry without id: {[e for e in entries if not e.get('id')][:1]}")
            seen = Counter()
            for entry in entries:
                if entry["id"] not in wanted:
                    expect(not entry["id"].startswith("hostile"), f"{entry['id']} was refused and is logged")
                    continue
                name, target, text = wanted[entry["id"]]
                seen[entry["id"]] += 1
                if "target" in sink.members and not sink.decodes:
                    expect(entry["target"] == target, f"{name}: target is {entry['target']!r}")
                if text is not None and "agent" in sink.members:
                    expect(entry["agent"] == text, f"{name}: agent is {entry['agent']!r}")
            missing = [wanted[key][0] for key in wanted if not seen[key]]
            expect(not missing, f"missing: {missing}")
            expect(max(seen.values()) == 1, f"more than once: {[wanted[key][0] for key in seen if seen[key] > 1]}")


def check_balance(scene: Scene, gateway: Gateway, sinks: list[Sink], prefix: str, load: Load, before: dict, restarted: bool = False):
    """Entries are sent or counted as dropped, and those that a server confirmed are on it."""
    wait_drained(gateway, 30)
    for sink in sinks:
        asked = load.sent[sink.route]
        after = settled(gateway, sink)
        ended = {result: after[result] - before[sink.route][result] for result in RESULTS}
        shared = [other for other in sinks if other.plugin == sink.plugin]
        total = sum(load.sent[other.route] for other in shared)
        expect(sum(ended.values()) == total, f"{sink.route}: {total} requests, but {ended}")
        start = time.monotonic()
        while True:
            found = sum(by_id(other.read(), f"{prefix}-{other.route}-").total() for other in shared)
            arrived = sum(len(by_id(other.read(), f"{prefix}-{other.route}-")) for other in shared)
            if arrived >= ended["sent"] or restarted and not sink.survives or time.monotonic() - start > 8:
                break
            time.sleep(0.5)
        drops = {result: int(count) for result, count in ended.items() if count and result != "sent"}
        scene.note(f"{sink.route}: {asked} requests, {ended['sent']:.0f} sent, {arrived} on the server, {found - arrived} twice, "
                   f"dropped {drops or 'none'}")
        if restarted and not sink.survives:
            continue
        if sink.confirms:
            expect(arrived >= ended["sent"], f"{sink.route}: {ended['sent']:.0f} entries count as sent, the server has {arrived}")
        elif sink.lossless:
            # A stream without answers: what the system had taken when the server died is lost.
            expect(ended["sent"] - arrived <= 0.5 * total, f"{sink.route}: {ended['sent']:.0f} sent, {arrived} on the server")


def check_resumed(gateway: Gateway, sinks: list[Sink], prefix: str):
    """New entries arrive."""
    for sink in sinks:
        sent = 0.0

        def asked_and_found(sink=sink):
            nonlocal sent
            # Some batches wait until nothing came for five seconds.
            if time.monotonic() - sent > 8:
                sent = time.monotonic()
                key = f"{prefix}-{sink.route}-{time.monotonic_ns()}"
                gateway.get(f"/{sink.route}/again?id={key}", {"X-Id": key})
            time.sleep(0.3)
            return by_id(sink.read(), f"{prefix}-{sink.route}-")
        wait_for(asked_and_found, 40, f"{sink.route}: entries arrive again")


def check_restart(scene: Scene, gateway: Gateway, sinks: list[Sink], server: Server, down: float = 1.5):
    with scene.case(f"{server.name} restarts under load: requests do not suffer, entries are sent or counted, and go on"):
        wait_drained(gateway, 25)
        before = {sink.route: settled(gateway, sink) for sink in sinks}
        with Load(gateway, [sink.route for sink in sinks], "restart") as load:
            time.sleep(2)
            server.stop()
            time.sleep(down)
            server.start()
            time.sleep(2.5)
        scene.note(load.check())
        check_balance(scene, gateway, sinks, "restart", load, before, restarted=True)
        check_resumed(gateway, sinks, "restarted")


def check_frozen(scene: Scene, gateway: Gateway, sinks: list[Sink], server: Server, seconds: float = 20):
    with scene.case(f"{server.name} stands still for {seconds:.0f} s: memory is bounded, drops are counted, entries go on"):
        wait_drained(gateway, 25)
        before = {sink.route: settled(gateway, sink) for sink in sinks}
        resident, most = gateway.resident_mib(), 0
        with Load(gateway, [sink.route for sink in sinks], "frozen", rate=60 * len(sinks)) as load:
            time.sleep(1)
            server.freeze()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                most = max(most, waiting(gateway))
                time.sleep(0.5)
            server.thaw()
            time.sleep(2)
        grown = gateway.resident_mib() - resident
        scene.note(f"{load.check()}; at most {most:.0f} entries waited, memory grew by {grown:.1f} MiB")
        expect(most <= sum(sink.pending_max + BATCH["batch_max_size"] for sink in sinks), f"{most:.0f} entries waited")
        expect(grown < 48, f"memory grew by {grown:.0f} MiB")
        check_balance(scene, gateway, sinks, "frozen", load, before)
        check_resumed(gateway, sinks, "thawed")


def prove(scene: Scene, gateway: Gateway, sinks: list[Sink], server: Server):
    """The whole proof."""
    check_whole(scene, gateway, sinks)
    check_injection(scene, gateway, sinks)
    check_restart(scene, gateway, sinks, server)
    if not scene.short:
        check_frozen(scene, gateway, sinks, server)


def check_metrics(gateway: Gateway, names: Callable[[], set]):
    """All metrics of /metrics are among the names that a collector of OTLP received."""
    wait_for(names, 15, "metrics")
    wanted = {name.removesuffix("_bucket") for name, _, _ in gateway.metrics() if not name.endswith(("_sum", "_count"))}
    # This one counts faults of the text form.
    wanted.discard("apisix_nginx_metric_errors_total")
    missing = lambda: {name for name in wanted if name not in names() and name.removesuffix("_total") not in names()}
    wait_for(lambda: not missing(), 15, lambda: f"metrics that are only in /metrics: {sorted(missing())[:5]}")


def parse(text: str) -> dict | None:
    """An entry of a line, if the line is a JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def default_form(entry: dict) -> dict:
    """The members of FORMAT from the default form of entries."""
    request = entry.get("request") or {}
    fields = request.get("headers") or {}
    return {"id": fields.get("x-id"), "target": request.get("uri"), "uri": re.sub(r"\?.*", "", request.get("uri") or ""),
            "agent": fields.get("user-agent"), "method": request.get("method"), "status": (entry.get("response") or {}).get("status")}


def id_of(target: str) -> str | None:
    """The id in a request target, for servers that keep no other member with it."""
    found = re.search(r"[?&]id=([\w-]+)$", target)
    return found[1] if found else None

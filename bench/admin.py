#!/usr/bin/env python3
"""Cost of configuration: loading routes one PUT at a time, a write until it is applied under load, reads.

Starts the gateway on an empty embedded store, an NGINX as upstream and wrk; prints figures, asserts nothing.
Usage: bench/admin.py [--routes 10000] [--seconds 10] [--writes 10] [--churn-seconds 60] [--data-dir DIR]
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import tempfile
import time
from pathlib import Path

from gateways import LOAD_CORE, ROOT, run_yumen, start_upstream

PUT_SCRIPT = """
local next_id, last = {first}, {last}
request = function()
  next_id = next_id + 1
  if next_id > last then next_id = {first} + 1 end
  local body = string.format('{{"uri":"/r/%d","upstream_id":"up","name":"r%d"}}', next_id, next_id)
  return wrk.format("PUT", "/apisix/admin/routes/r" .. next_id, {{["X-API-KEY"] = "{key}"}}, body)
end
"""


def percentile(values, share):
    """The quantile of the values for this share."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Admin:
    """A kept connection to the admin listener."""

    def __init__(self, port, key):
        self.port, self.key, self.link, self.used = port, key, None, 0.0

    def ask(self, method, path, body=None):
        """Status and document."""
        # The listener closes connections that are idle for 30 s.
        if self.link is None or time.monotonic() - self.used > 10:
            self.link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self.used = time.monotonic()
        text = None if body is None else json.dumps(body)
        self.link.request(method, path, text, {"X-API-KEY": self.key})
        reply = self.link.getresponse()
        return reply.status, reply.read()


def start(folder, data_dir):
    """The gateway with an empty store, and its admin key."""
    # Not pinned: store and compiler have their own threads.
    gateway = run_yumen(folder / "yumen.log", "--data-dir", data_dir, core=None)
    gateway.wait_listening(gateway.admin)
    return gateway, gateway.admin, key_of([folder / "yumen.log"])


def key_of(logs):
    """The admin key, printed once for a new store; with a shared store by one of the nodes."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if found := re.search(r"^  admin    ([0-9a-f]{40})$", "".join(log.read_text() for log in logs), re.M):
            return found.group(1)
        time.sleep(0.02)
    raise RuntimeError("no admin key was printed")


def wrk(url, connections, seconds, script=None, core=LOAD_CORE):
    """Starts wrk, which reports on standard output."""
    args = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    args += ["-s", str(script)] if script else []
    return subprocess.Popen([*args, url], stdout=subprocess.PIPE, text=True)


def report(text):
    """Requests per second, p50, p99 and errors from a report of wrk."""
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    units = {"us": 1e-3, "ms": 1, "s": 1e3}
    points = {name: float(value) * units[unit] for name, value, unit in
              re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)", text, re.M)}
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    sockets = re.search(r"Socket errors: (.*)", text)
    return rate, points.get("50"), points.get("99"), (bad and bad.group(1)) or "0", sockets and sockets.group(1)


def load_routes(folder, port, key, routes, connections, seconds):
    """PUTs per second with this number of clients, one PUT at a time each; wraps around after the last route."""
    script = folder / f"put-{connections}.lua"
    script.write_text(PUT_SCRIPT.format(first=0, last=routes, key=key))
    text = wrk(f"http://127.0.0.1:{port}", connections, seconds, script).communicate()[0]
    rate, p50, p99, bad, _ = report(text)
    print(f"load    {connections:>3} clients: {rate:8.0f} PUT/s   p50 {p50:.2f} ms   p99 {p99:.2f} ms   "
          f"refused {bad}")


def write_for(admin, seconds, per_second):
    """Writes this number of routes per second; returns the time until each was applied, in milliseconds."""
    waits, end, turn = [], time.monotonic() + seconds, 0
    while time.monotonic() < end:
        turn += 1
        route = {"uri": f"/churn/{turn}", "upstream_id": "up"}
        begin = time.monotonic()
        status, text = admin.ask("PUT", f"/apisix/admin/routes/churn{turn % 50}?wait=applied", route)
        waits.append((time.monotonic() - begin) * 1e3)
        assert status in (200, 201), text
        time.sleep(max(0, begin + 1 / per_second - time.monotonic()))
    return waits


def writes_under_load(gateway, admin, routes, seconds, per_second, rounds=5):
    """A write until it is applied while the gateway is saturated, and the effect on the load.

    `elsewhere` sends the writes to another gateway on the same cores, as a baseline for the cost of writer and disk."""
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        folder = Path(folder).resolve()
        other, port, key = start(folder, folder / "data")
        try:
            elsewhere = Admin(port, key)
            elsewhere.ask("PUT", "/apisix/admin/upstreams/up", {"nodes": {"127.0.0.1:1": 1}})
            load_routes(folder, port, key, routes, 16, seconds)
            arms, waits = {"nobody": [], "elsewhere": [], "here": []}, []
            for _ in range(rounds):
                for arm in random.sample(list(arms), len(arms)):
                    load = wrk(f"http://127.0.0.1:{gateway.http}/r/1", 16, seconds)
                    if arm != "nobody":
                        took = write_for(admin if arm == "here" else elsewhere, seconds - 1, per_second)
                        waits += took if arm == "here" else []
                    arms[arm].append(report(load.communicate()[0]))
        finally:
            other.stop()
    print(f"effective among {routes} routes under load: p50 {percentile(waits, .5):.2f} ms   "
          f"p99 {percentile(waits, .99):.2f} ms   max {max(waits):.2f} ms   ({len(waits)} writes, {per_second} a second)")
    middle = lambda values: sorted(values)[len(values) // 2]
    for arm, rounds_of in arms.items():
        rates, p50s, p99s, bad, sockets = zip(*rounds_of)
        against = middle([p99 / base[2] for p99, base in zip(p99s, arms["nobody"])])
        print(f"load, writes {arm:>9}: {middle(rates):8.0f} req/s   p50 {middle(p50s):.3f} ms   p99 {middle(p99s):.3f} ms "
              f"({against:.2f} of nobody's)   bad statuses {sum(map(int, bad))}   "
              f"socket errors {', '.join(filter(None, sockets)) or 'none'}")


def write_cost(gateway, admin, routes, count=200, per_second=50):
    """CPU time of one write by thread, on an otherwise idle gateway."""
    write = lambda turn: admin.ask("PUT", f"/apisix/admin/routes/cost{turn % 50}?wait=applied",
                                   {"uri": f"/cost/{turn}", "upstream_id": "up"})
    for turn in range(50):
        write(turn)
    before = gateway.thread_ns()
    for turn in range(count):
        write(turn)
        time.sleep(1 / per_second)
    spent = {name: (ns - before.get(name, 0)) / count / 1000 for name, ns in gateway.thread_ns().items()}
    parts = ", ".join(f"{name} {us:.0f}" for name, us in sorted(spent.items(), key=lambda one: -one[1]) if us >= 5)
    print(f"a write among {routes} routes: {sum(spent.values()):.0f} us of processor time ({parts})")


def reads(admin, count=300):
    """Lists and gets, in milliseconds."""
    for name, path in (("get", "/apisix/admin/routes/r77"),
                       ("page of 100", "/apisix/admin/routes?page=5&page_size=100"),
                       ("whole list", "/apisix/admin/routes")):
        waits = []
        for _ in range(count):
            begin = time.monotonic()
            status, text = admin.ask("GET", path)
            waits.append((time.monotonic() - begin) * 1e3)
            assert status == 200, text
        print(f"{name:<12} p50 {percentile(waits, .5):6.2f} ms   p99 {percentile(waits, .99):6.2f} ms")


def churn(gateway, admin, seconds, per_second=50):
    """A constant rate of changes, and the resident memory."""
    load = wrk(f"http://127.0.0.1:{gateway.http}/r/1", 4, seconds)
    begin, turn, seen = time.monotonic(), 0, []
    while time.monotonic() - begin < seconds:
        turn += 1
        nodes = {"127.0.0.1:1": 1, f"127.0.0.1:{2 + turn % 100}": 1}
        admin.ask("PUT", f"/apisix/admin/upstreams/churn{turn % 100}", {"nodes": nodes})
        if turn % (per_second * 5) == 0:
            seen.append(gateway.rss_kib() // 1024)
        time.sleep(max(0, begin + turn / per_second - time.monotonic()))
    load.communicate()
    print(f"churn   {turn / seconds:.0f} changes/s for {seconds} s: RSS MiB every 5 s {seen}")


def main():
    """Runs all measurements once."""
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--routes", type=int, default=10000)
    args.add_argument("--seconds", type=int, default=10)
    args.add_argument("--writes", type=int, default=10, help="writes a second while the load runs")
    args.add_argument("--churn-seconds", type=int, default=60)
    args.add_argument("--data-dir", help="where the store is kept [default: a new directory on this disk]")
    args = args.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        folder = Path(folder).resolve()
        upstream = start_upstream(folder)
        gateway, port, key = start(folder, args.data_dir or folder / "data")
        try:
            admin = Admin(port, key)
            status, text = admin.ask("PUT", "/apisix/admin/upstreams/up", {"nodes": {f"127.0.0.1:{upstream.http}": 1}})
            assert status == 201, text
            for connections in (1, 16, 64):
                load_routes(folder, port, key, args.routes, connections, args.seconds)
            write_cost(gateway, admin, args.routes)
            writes_under_load(gateway, admin, args.routes, args.seconds, args.writes)
            reads(admin)
            churn(gateway, admin, args.churn_seconds)
            print(f"RSS     {gateway.rss_kib() / 1024:.1f} MiB at the end")
        finally:
            gateway.stop()
            upstream.stop()


if __name__ == "__main__":
    main()

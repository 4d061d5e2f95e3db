#!/usr/bin/env python3
"""CPU time per request of yumen beside NGINX and HAProxy, and the other figures with a target.

Every gateway has one worker on core 0; wrk and the upstream share core 1. Rounds are interleaved in
random order, and ratios are medians of per-round ratios, because the machine drifts between rounds.
A missed target is printed and never fails the build, because of the noise; `bench/instructions.py` does fail it.
"""

import argparse
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import counterparts
import gateways as gw

HERE = Path(__file__).resolve().parent
ALL = ("yumen", "nginx", "haproxy")
# Further configurations of yumen for comparison: name of the entrant, and its flavour.
OWN = {"plain": "plain", "local": "limit-count", "over-h1": "h1-upstream"}
# Small messages over plain TCP: the cost of forwarding without parsing.
WITH_FLOOR = (*ALL, "floor")


@dataclass(frozen=True)
class Scenario:
    """A table: configuration, load, gateways, and the base of the ratios."""
    name: str
    flavour: str = "plain"
    path: str = "/"
    connections: int = 16
    tls: bool = False
    close: bool = False
    full: bool = False       # no handshake is resumed, which wrk's would be
    streams: int = 0         # requests at once on a connection of HTTP/2, by h2load; 0 is wrk and HTTP/1.1
    call: bool = False       # each request is a gRPC call
    headers: tuple = ()
    entrants: tuple = ALL
    base: str = "nginx"      # ratios are to this entrant; those of OWN are configurations of yumen's own
    target: float = None     # the ratio yumen is to stay under


def own(name, target, entrants=("yumen", "plain", "nginx"), **more):
    """A scenario measured against yumen's own plain configuration."""
    return Scenario(name, flavour=name, base="plain", target=target, entrants=entrants, **more)


APIKEY = (f"apikey: {gw.KEY}",)
SCENARIOS = [
    Scenario("plain-16", target=0.87, entrants=WITH_FLOOR),
    Scenario("plain-128", connections=128, target=0.82, entrants=WITH_FLOOR),
    Scenario("1k", path="/1k"),
    Scenario("100k", path="/100k", target=0.41),
    Scenario("close", close=True, target=0.65, entrants=WITH_FLOOR),
    Scenario("tls", tls=True, path="/1k", target=0.81),
    Scenario("tls-close", tls=True, close=True, full=True, target=0.60),
    Scenario("tls-resume", tls=True, close=True),
    Scenario("mock", flavour="mock", target=0.93),
    own("routes-100", 1.01),
    own("routes-10000", 1.03),
    own("routes-100000", 1.03, entrants=("yumen", "plain")),
    own("key-auth", 1.03, headers=APIKEY),
    own("limit-count", 1.03),
    own("key-auth+limit-count", 1.05, headers=APIKEY),
    # A Redis call adds one send and receive to the two of each that a plain request has.
    Scenario("limit-count-redis", flavour="limit-count-redis", base="local", entrants=("yumen", "local"), target=1.6),
    Scenario("limit-count-delayed", flavour="limit-count-delayed", base="local", entrants=("yumen", "local"),
             target=1.03),
    own("prometheus", 1.03, entrants=("yumen", "plain")),
    own("jwt-jwks", 1.10, entrants=("yumen", "plain")),
    own("oidc-session", 1.15, entrants=("yumen", "plain")),
    # The CPU time includes that of the sender.
    own("http-logger", 1.06, entrants=("yumen", "plain")),
    own("otel-1pct", 1.03, entrants=("yumen", "plain")),
    Scenario("h2-tls", flavour="h2", tls=True, connections=4, streams=100, target=0.80, entrants=("yumen", "nginx")),
    Scenario("h2c-upstream", flavour="h2c-upstream", connections=64, base="over-h1", target=1.0,
             entrants=("yumen", "over-h1")),
    # NGINX sends each response in two segments, which costs the load's core.
    own("h2c-nginx", 1.0, entrants=("yumen", "plain"), connections=64),
    Scenario("grpc", flavour="grpc", path=gw.CALL, connections=4, streams=25, call=True, base="envoy", target=0.60,
             entrants=("yumen", "envoy", "nginx")),
]
SPECIAL = ("startup", "reload")


@dataclass
class Round:
    """The result of one run of the load generator."""
    cpu_us: float
    rate: float
    p50_us: int
    p99_us: int
    max_us: int
    errors: str


def load_streams(gateway, scenario, seconds):
    """One run of h2load against one gateway, without percentiles."""
    args = ["h2load", "-t1", f"-c{scenario.connections}", f"-m{scenario.streams}", f"-D{seconds}"]
    if scenario.call:
        args += ["-d", gw.call_body(), "-H", "content-type: application/grpc", "-H", "te: trailers"]
    before = gateway.cpu_ns()
    run = subprocess.run([*map(str, args), gateway.url(scenario.tls, scenario.path)], capture_output=True, text=True,
                         timeout=seconds + 60, preexec_fn=gw.on_core(gw.LOAD_CORE))
    spent = gateway.cpu_ns() - before
    counts = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", run.stdout)
    if not counts or not int(counts[2]):
        return Round(0, 0, 0, 0, 0, "h2load failed: " + (run.stderr or run.stdout).strip()[-200:])
    done, succeeded, *bad = map(int, counts.groups())
    wrong = [f"{n} {what}" for n, what in zip(bad, ("failed", "errored", "timed out")) if n]
    if (codes := re.search(r"status codes: (\d+) 2xx", run.stdout)) and int(codes[1]) < succeeded:
        wrong.append(f"{succeeded - int(codes[1])} not 2xx")
    return Round(spent / 1000 / done, done / seconds, 0, 0, 0, ", ".join(wrong))


def load(gateway, scenario, seconds, routes):
    """One run of the load generator against one gateway."""
    if scenario.streams:
        return load_streams(gateway, scenario, seconds)
    args = ["wrk", "-t1", f"-c{scenario.connections}", f"-d{seconds}s", "--timeout", "10s",
            "-s", HERE / "report.lua"]
    for header in scenario.headers + (("Connection: close",) if scenario.close else ()):
        args += ["-H", header]
    args += [gateway.url(scenario.tls, scenario.path), "--", routes]
    env = {**os.environ, "LD_PRELOAD": str(gw.FULL_HANDSHAKE)} if scenario.full else None
    before = gateway.cpu_ns()
    run = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=seconds + 60,
                         env=env, preexec_fn=gw.on_core(gw.LOAD_CORE))
    spent = gateway.cpu_ns() - before
    line = re.search(r"^RESULT (.*)$", run.stdout, re.M)
    if not line:
        return Round(0, 0, 0, 0, 0, "wrk failed: " + (run.stderr or run.stdout).strip()[-200:])
    requests, duration, p50, p99, worst, broken, status, timeouts = map(int, line[1].split())
    wrong = [f"{n} {what}" for n, what in ((broken, "broken"), (status, "not 2xx"), (timeouts, "timed out")) if n]
    if requests == 0:
        wrong.append("no answer")
    return Round(spent / 1000 / max(requests, 1), requests / duration * 1e6, p50, p99, worst, ", ".join(wrong))


def measure(scenario, options, folder, upstream, cert):
    """All rounds of one scenario; returns entrant -> rounds, and entrant -> resident KiB."""
    running, rounds, resident = {}, {}, {}
    try:
        for entrant in scenario.entrants:
            kind = "yumen" if entrant in OWN else entrant
            if kind == "yumen" and not gw.YUMEN.exists():
                continue
            if kind == "envoy" and not gw.find_envoy():
                say(f"\n{scenario.name}: without Envoy, scripts/deps.sh lab installs it")
                continue
            flavour = OWN.get(entrant, scenario.flavour)
            running[entrant] = gw.START[kind](folder, f"{scenario.name}-{entrant}", flavour, upstream, cert)
            rounds[entrant] = []
        routes = gw.route_names(scenario.flavour)
        if "yumen" in running:
            # All entrants get the same requests: the ratio is the cost of the feature, not of longer heads.
            more = counterparts.fields(scenario.flavour, running["yumen"].http, upstream.counterpart)
            scenario = replace(scenario, headers=scenario.headers + more)
        for gateway in running.values():
            load(gateway, scenario, 1, routes)
        for _ in range(options.rounds):
            for entrant in random.sample(list(running), len(running)):
                rounds[entrant].append(load(running[entrant], scenario, options.seconds, routes))
        resident = {entrant: gateway.rss_kib() for entrant, gateway in running.items()}
        # Entries that are not sent cost less.
        if dropped := gw.metric(running["yumen"], "yumen_sink_entries_total", "dropped") if "yumen" in running else 0:
            rounds["yumen"][-1].errors += f" {dropped:.0f} entries dropped"
    finally:
        for gateway in running.values():
            gateway.stop()
    return rounds, resident


def ratio(rounds, entrant, base):
    """Median of per-round ratios of CPU per request; None without a comparison."""
    pairs = zip(rounds.get(entrant, []), rounds.get(base, []))
    ratios = [a.cpu_us / b.cpu_us for a, b in pairs if a.cpu_us and b.cpu_us]
    return median(ratios) if ratios else None


def verdict(scenario, entrant, measured):
    """The text of the target column."""
    if entrant != "yumen" or scenario.target is None or measured is None:
        return ""
    return f"{'ok' if measured <= scenario.target else 'MISS'} (<= {scenario.target:.2f})"


def report(scenario, rounds, resident):
    """Prints one table and returns it as data."""
    say(f"\n{scenario.name}: {scenario.connections} connections{', TLS' if scenario.tls else ''}"
        f"{f', {scenario.streams} streams each' if scenario.streams else ''}"
        f"{', a connection per request' if scenario.close else ''}"
        f"{', every handshake full' if scenario.full else ''}; ratio to {scenario.base}")
    say(f"  {'gateway':<9}{'CPU us/req':>11}{'ratio':>8}{'req/s':>10}{'p50 us':>9}{'p99 us':>9}{'RSS MiB':>9}  target")
    table = {}
    for entrant, runs in rounds.items():
        measured = ratio(rounds, entrant, scenario.base)
        row = {"cpu_us": median(r.cpu_us for r in runs), "ratio": measured, "rate": median(r.rate for r in runs),
               "p50_us": median(r.p50_us for r in runs), "p99_us": median(r.p99_us for r in runs),
               "rss_kib": resident[entrant], "target": scenario.target if entrant == "yumen" else None,
               "errors": sorted({r.errors for r in runs if r.errors})}
        shown = "-" if measured is None else f"{measured:.3f}"
        say(f"  {entrant:<9}{row['cpu_us']:>11.2f}{shown:>8}{row['rate']:>10.0f}{row['p50_us']:>9.0f}"
            f"{row['p99_us']:>9.0f}{row['rss_kib'] / 1024:>9.1f}  {verdict(scenario, entrant, measured)}")
        for error in row["errors"]:
            say(f"  {'':<9}INVALID: {error}")
        table[entrant] = row
    return table


def startup(options, folder, upstream, cert):
    """Time from exec to the first proxied response, and memory, with one route and with 100 000."""
    say("\nstartup: from exec to the first proxied answer")
    say(f"  {'routes':<9}{'ready ms':>10}{'RSS MiB':>9}  target")
    table = {}
    for count, ready_max, rss_max in ((1, 50, 20), (100000, 2000, 150)):
        flavour = "plain" if count == 1 else f"routes-{count}"
        times, memory = [], []
        for attempt in range(3):
            begun = time.monotonic()
            gateway = gw.start_yumen(folder, f"startup-{count}-{attempt}", flavour, upstream, cert, wait=False)
            # Writing the routes file is not part of the gateway's time.
            begun = max(begun, gateway.routes.stat().st_mtime - time.time() + time.monotonic())
            try:
                path = "/" if count == 1 else f"/r/{count - 1}"
                if gw.answers(gateway.url(path=path), 30) is None:
                    say(f"  {count:<9} no answer within 30 s")
                    return table
                times.append((time.monotonic() - begun) * 1000)
                memory.append(gateway.rss_kib() / 1024)
            finally:
                gateway.stop()
        ready, rss = median(times), median(memory)
        say(f"  {count:<9}{ready:>10.1f}{rss:>9.1f}  {mark(ready, ready_max, 'ms')}, {mark(rss, rss_max, 'MiB')}")
        table[count] = {"ready_ms": ready, "rss_mib": rss}
    return table


def mark(value, most, unit):
    return f"{'ok' if value <= most else 'MISS'} (<= {most} {unit})"


def scrape(gateway, name):
    """Sum and count of a histogram, or (value, 1) of a plain metric, over all its series."""
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.status}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    def total(suffix):
        found = re.findall(rf"^{name}{suffix}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        return sum(map(float, found)) if found else None
    if total("_sum") is not None:
        return total("_sum"), total("_count")
    return total(""), 1


def reload(options, folder, upstream, cert):
    """Changes one of 100 000 routes under load: time to compile and publish, and the latency of requests."""
    say("\nreload: one change among 100 000 routes, under load")
    flavour = "routes-100000"
    # The worker has core 0; the control runtime may use the rest of the other cores.
    gateway = gw.start_yumen(folder, "reload", flavour, upstream, cert, core=None)
    scenario = Scenario("reload", flavour=flavour)
    edits, seen = 5, []
    versions = []
    for marker in range(1, edits + 1):
        version = folder / f"reload-{marker}.yaml"
        version.write_text(gw.routes_file(flavour, upstream, cert, marker))
        versions.append(version)

    def edit():
        for marker, version in enumerate(versions, 1):
            os.replace(version, gateway.routes)
            seen.append(gw.answers(gateway.url(path=f"/marker/{marker}"), 20, pause=0.01))

    try:
        if gw.answers(gateway.url(path="/r/99999"), 60) is None:
            say("  no answer within 60 s")
            return {}
        load(gateway, scenario, 1, 100000)
        before = load(gateway, scenario, max(4, options.seconds), 100000)
        compiled = scrape(gateway, "yumen_config_compile_seconds")
        editor = threading.Thread(target=edit)
        editor.start()
        during = load(gateway, scenario, max(8, 2 * options.seconds), 100000)
        editor.join(120)
        after = scrape(gateway, "yumen_config_compile_seconds")
    finally:
        gateway.stop()
    compile_ms = None
    if after[0] is not None:
        count = after[1] - (compiled[1] or 0)
        compile_ms = (after[0] - (compiled[0] or 0)) / count * 1000 if count else after[0] * 1000
    felt = [f"{s:.2f}" if s is not None else "never" for s in seen]
    say(f"  compile and publish: {'not reported' if compile_ms is None else f'{compile_ms:.2f} ms  {mark(compile_ms, 2, chr(109) + chr(115))}'}")
    say(f"  file written to change served: {', '.join(felt)} s")
    say(f"  p99 us before {before.p99_us}, during {during.p99_us}; slowest before {before.max_us}, during {during.max_us}")
    for error in {before.errors, during.errors} - {""}:
        say(f"  INVALID: {error}")
    return {"compile_ms": compile_ms, "seen_s": seen, "p99_before_us": before.p99_us, "p99_during_us": during.p99_us}


def facts():
    """The machine and the versions, which belong to every figure."""
    def first(args):
        try:
            run = subprocess.run(args, capture_output=True, text=True, timeout=10)
            return ((run.stdout or "") + (run.stderr or "")).strip().splitlines()[0]
        except (OSError, IndexError):
            return "not installed"
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return {
        "cpu": f"{os.cpu_count()} x {found[1] if found else platform.machine()}",
        "kernel": platform.release(),
        "yumen": first([gw.YUMEN, "version"]) if gw.YUMEN.exists() else "not built",
        "nginx": first([shutil.which("nginx", path=path) or "nginx", "-v"]),
        "haproxy": first([shutil.which("haproxy", path=path) or "haproxy", "-v"]),
        "wrk": first(["wrk", "-v"]),
        "load": f"{os.getloadavg()[0]:.2f}",
    }


def say(text):
    print(text, flush=True)


def arguments():
    names = [s.name for s in SCENARIOS] + list(SPECIAL)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="scenarios: " + " ".join(names))
    parser.add_argument("--quick", action="store_true", help="few short rounds: a look, not a figure to quote")
    parser.add_argument("--rounds", type=int, help="rounds per scenario (7; quick 2)")
    parser.add_argument("--seconds", type=int, help="seconds per run (2; quick 1)")
    parser.add_argument("--scenarios", help="comma-separated names")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 7)
    options.seconds = options.seconds or (1 if options.quick else 2)
    options.names = options.scenarios.split(",") if options.scenarios else names
    unknown = set(options.names) - set(names)
    if unknown:
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; there are: {' '.join(names)}")
    return options


def run(options, folder, results):
    upstream = gw.start_upstream(folder)
    service = redis = either = None
    try:
        upstream.counterpart = counterparts.Counterpart(folder)
        service = gw.start_grpc(folder, upstream)
        redis = gw.start_redis(folder, upstream)
        either = gw.start_either(folder, upstream)
        cert = gw.make_certificate(folder)
        gw.make_full_handshake()
        gw.make_floor()
        for scenario in (s for s in SCENARIOS if s.name in options.names):
            if scenario.call and not service:
                say(f"\n{scenario.name}: left out, scripts/deps.sh conformance builds its server")
                continue
            if scenario.base == "local" and not redis:
                say(f"\n{scenario.name}: left out, scripts/deps.sh bench installs Redis")
                continue
            results[scenario.name] = report(scenario, *measure(scenario, options, folder, upstream, cert))
        for special in (startup, reload):
            if special.__name__ in options.names and gw.YUMEN.exists():
                results[special.__name__] = special(options, folder, upstream, cert)
    finally:
        for beside in (service, redis, either, upstream.counterpart):
            if beside:
                beside.stop()
        upstream.stop()


def main():
    options = arguments()
    # Exits through the finally blocks, which stop the started programs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if (os.cpu_count() or 1) < 2:
        sys.exit("bench: needs two cores, one for the gateway and one for the load")
    machine = facts()
    for name, fact in machine.items():
        say(f"{name:<9}{fact}")
    if not gw.YUMEN.exists():
        say(f"yumen is skipped: {gw.YUMEN} does not exist (make dist)")
    results = {}
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="yumen-bench-", dir=memory) as folder:
        # NGINX drops to an unprivileged user, which must be able to read the 100 KB file.
        os.chmod(folder, 0o755)
        run(options, Path(folder), results)
    if options.json:
        options.json.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

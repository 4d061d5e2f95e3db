#!/usr/bin/env python3
"""The effect of a thousand endpoint changes per second on clients, by the source of the changes.

Two equal gateways with one worker share core 0, each with its own store, 10 000 routes and 200 upstreams of five endpoints. One
of them serves a constant open-loop load. Every round runs these arms in random order:

  idle    no writes
  again   as idle, for the noise
  beside  writes to the other gateway
  into    writes to the loaded gateway
  away    writes to a separate store that no gateway follows (only with a store that is a process of its own)

The excess of `into` over `beside` is caused inside the loaded gateway; the excess over `away` includes the cost of receiving the
changes; the remaining excess over `idle` comes from sharing the machine with the writer and the store. Load and upstream run on
core 1, where the writer and etcd get only the idle time.
Usage: bench/churn.py [--sources etcd,...] [--changes 1000] [--rounds 4] [--seconds 8] [--rate 3000] [--routes 10000]
"""

import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path
from statistics import median

import admin as single
import cluster
from churn_sources import SOURCES, PORTS
from gateways import LOAD_CORE, free_port, nginx

ARMS = ("idle", "again", "away", "beside", "into")
POINTS = (0.5, 0.99, 0.999)


def start_upstream(folder):
    """One NGINX on many ports: all endpoints respond, so that only the changes have an effect."""
    ports = [free_port() for _ in range(PORTS)]
    listens = " ".join(f"listen 127.0.0.1:{port} backlog=16384;" for port in ports)
    upstream = nginx(folder, "upstream", f'server {{ {listens} location / {{ return 200 "hello\\n"; }} }}', LOAD_CORE)
    for port in ports:
        upstream.wait_listening(port)
    upstream.ports = ports
    return upstream


def load(folder, gateway, options):
    """A span of constant load: its histogram and its failures."""
    out = folder / "load.json"
    args = ["taskset", "-c", LOAD_CORE, cluster.BENCH, "load", "--urls-file", gateway.urls, "-c", 64, "-q",
            "-d", f"{options.seconds}s", "-R", options.rate, "--warmup", "1s", "--json", out]
    subprocess.run([str(arg) for arg in args], check=True, stdout=subprocess.DEVNULL)
    span = json.loads(out.read_text())
    failed = sum(count for kind, count in span["errors"].items() if kind != "examples")
    return cluster.counts(span["latency"]["histogram"]), failed


def one_arm(folder, arm, source, pair, options):
    """One span with its writer, if any."""
    taker = {"away": source.nobody, "beside": pair[1], "into": pair[0]}.get(arm)
    before = pair[0].thread_ns()
    writer = source.write(taker, options) if taker else None
    span, failed = load(folder, pair[0], options)
    written = writer.end() if writer else 0
    spent = {name: (ns - before.get(name, 0)) / 1e9 / (options.seconds + 1) for name, ns in pair[0].thread_ns().items()}
    return span, failed, written, spent


def merged(spans):
    """The sum of several histograms."""
    total = {}
    for span in spans:
        for value, count in span:
            total[value] = total.get(value, 0) + count
    return sorted(total.items())


def report(source, results, options):
    """Percentiles of each arm over all rounds, the median of the ratios within rounds, and the rank test."""
    print(f"\n{source}: {options.changes} changes of endpoints a second, {options.routes} routes, "
          f"{options.rate} requests a second, {options.rounds} rounds of {options.seconds} s", flush=True)
    idle = merged(one[0] for one in results["idle"])
    for arm, runs in results.items():
        whole = merged(one[0] for one in runs)
        points = [cluster.quantile(whole, share) for share in POINTS]
        shares = [median(cluster.quantile(one[0], share) / cluster.quantile(base[0], share)
                         for one, base in zip(runs, results["idle"])) for share in POINTS]
        rate = sum(one[2] for one in runs) / len(runs) / (options.seconds + 1)
        spent = {}
        for one in runs:
            for name, share in one[3].items():
                spent[name] = spent.get(name, 0) + share / len(runs)
        busy = " ".join(f"{name.removeprefix('yumen-')} {share * 100:.1f}%"
                        for name, share in sorted(spent.items(), key=lambda one: -one[1]) if share > 0.0015)
        print(f"  {arm:<7} p50 {points[0]:6.1f}  p99 {points[1]:7.1f}  p99.9 {points[2]:7.1f} us   of idle "
              f"{' '.join(f'{share:.3f}' for share in shares)}   longer than idle {cluster.superiority(whole, idle):.3f}   "
              f"failed {sum(one[1] for one in runs)}   {rate:.0f} changes/s   core 0: {busy}", flush=True)


def run(folder, name, options):
    source = SOURCES[name](folder)
    upstream = start_upstream(folder)
    source.start(upstream.ports)
    pair = []
    try:
        for which in ("loaded", "other"):
            own = folder / which
            own.mkdir()
            gateway = source.gateway(own, options.routes)
            pair.append(gateway)
            gateway.urls = own / "urls"
            asked = random.sample(range(options.routes), min(1000, options.routes))
            gateway.urls.write_text("".join(f"http://127.0.0.1:{gateway.http}/r/{at}\n" for at in asked))
        arms = [arm for arm in ARMS if arm != "away" or source.nobody]
        results = {arm: [] for arm in arms}
        load(folder, pair[0], options)
        for _ in range(options.rounds):
            for arm in random.sample(arms, len(arms)):
                results[arm].append(one_arm(folder, arm, source, pair, options))
        report(name, results, options)
    finally:
        source.stop()
        for process in (*pair, upstream):
            process.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rate", type=int, default=3000)
    parser.add_argument("--routes", type=int, default=10000)
    options = parser.parse_args()
    for name in options.sources.split(","):
        with tempfile.TemporaryDirectory(prefix="yumen-churn-", dir=single.ROOT / "target") as made:
            run(Path(made), name, options)


if __name__ == "__main__":
    main()

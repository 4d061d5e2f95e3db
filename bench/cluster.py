#!/usr/bin/env python3
"""Cost of a cluster on etcd: a write until it is applied on every other node, and the effect of an etcd outage on clients.

One etcd member and three nodes with one worker each, 10 000 routes. A write goes to the first node; the others are polled until
their responses follow from it. Then one node gets a constant load in three spans of equal length: two as they are, one with etcd
stopped. Spans are compared by the probability that a request of one takes longer than a request of the other (0.5: no
difference). Finally etcd is restarted and the time until the nodes follow it again is measured.
Usage: bench/cluster.py [--routes 10000] [--writes 200] [--rate 4000] [--seconds 30]
"""

import argparse
import base64
import http.client
import json
import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from pathlib import Path

import admin as single
from gateways import LOAD_CORE, ROOT, Process, free_port, run_yumen, start_upstream

BENCH = ROOT / "target/dist/yumen-bench"


def start_etcd(folder, port, peer):
    """A single member, with its previous data."""
    url = f"http://127.0.0.1:{port}"
    args = [shutil.which("etcd"), "--name", "m0", "--data-dir", folder / "etcd", "--listen-client-urls", url,
            "--advertise-client-urls", url, "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"m0=http://127.0.0.1:{peer}", "--log-level", "error"]
    member = Process(args, folder / "etcd.log", None)
    member.wait_listening(port)
    return member


def start_node(folder, name, etcd):
    """A gateway of the cluster."""
    own = folder / name
    own.mkdir()
    (own / "yumen.yaml").write_text(
        f"store: {{kind: etcd, data_dir: {own}/data, etcd: {{host: ['http://127.0.0.1:{etcd}']}}}}\n")
    node = run_yumen(folder / f"{name}.log", "--config", own / "yumen.yaml", core=None)
    node.wait_listening(node.http, 60)
    return node


class Asker:
    """A kept connection to the client listener of a node."""

    def __init__(self, port):
        self.link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def answer(self, path):
        self.link.request("GET", path)
        reply = self.link.getresponse()
        return reply.status, reply.read()


def effective(admin, nodes, writes):
    """The time from the response of a write (applied on its own node), and from its begin, until the last node has applied
    it."""
    askers = [Asker(node.http) for node in nodes]
    after_answer, after_begin = [], []
    for turn in range(writes):
        route = {"uri": "/marker", "plugins": {"mocking": {"response_status": 200, "response_example": str(turn)}}}
        begin = time.monotonic()
        status, text = admin.ask("PUT", "/apisix/admin/routes/marker", route)
        answered = time.monotonic()
        assert status in (200, 201), text
        waiting = list(askers)
        while waiting:
            waiting = [one for one in waiting if one.answer("/marker") != (200, str(turn).encode())]
            assert time.monotonic() - answered < 10, "a node does not follow"
        last = time.monotonic()
        after_answer.append((last - answered) * 1e3)
        after_begin.append((last - begin) * 1e3)
        time.sleep(0.02)
    for name, waits in (("from its answer", after_answer), ("from its beginning", after_begin)):
        print(f"in force on all other nodes, {name}: p50 {single.percentile(waits, .5):.2f} ms   "
              f"p99 {single.percentile(waits, .99):.2f} ms   max {max(waits):.2f} ms   ({len(waits)} writes)")


def counts(text):
    """An HdrHistogram in its second format as (value, count), in order."""
    packed = base64.b64decode(text)
    plain = zlib.decompress(packed[8:])
    _, _, _, digits, lowest, _, _ = struct.unpack(">iiiiqqd", plain[:40])
    unit, half = lowest.bit_length() - 1, (2 * 10 ** digits - 1).bit_length() - 1
    found, index, at = [], 0, 40
    while at < len(plain):
        number, shift = 0, 0
        while True:
            byte, at = plain[at], at + 1
            number |= (byte & (0xFF if shift == 56 else 0x7F)) << shift
            shift += 7
            if byte < 128 or shift > 56:
                break
        count = (number >> 1) ^ -(number & 1)
        if count < 0:
            index += -count
            continue
        bucket = (index >> half) - 1
        sub = (index & ((1 << half) - 1)) + (1 << half)
        if bucket < 0:
            bucket, sub = 0, sub - (1 << half)
        if count:
            found.append((sub << (bucket + unit), count))
        index += 1
    return found


def superiority(one, other):
    """The probability that a value of `one` is above one of `other`; equal values count half."""
    total, below, at = 0, 0, 0
    for value, count in one:
        while at < len(other) and other[at][0] < value:
            below += other[at][1]
            at += 1
        equal = other[at][1] if at < len(other) and other[at][0] == value else 0
        total += count * (below + equal / 2)
    return total / (sum(count for _, count in one) * sum(count for _, count in other))


def load(folder, node, rate, seconds):
    """A span of constant load."""
    out = folder / "load.json"
    args = ["taskset", "-c", LOAD_CORE, BENCH, "load", f"http://127.0.0.1:{node.http}/r/1", "-c", 64, "-d", f"{seconds}s",
            "-R", rate, "--warmup", "1s", "--json", out]
    subprocess.run([str(arg) for arg in args], check=True, stdout=subprocess.DEVNULL)
    span = json.loads(out.read_text())
    failed = sum(count for kind, count in span["errors"].items() if kind != "examples")
    return counts(span["latency"]["histogram"]), failed


def quantile(span, share):
    wanted = sum(count for _, count in span) * share
    for value, count in span:
        wanted -= count
        if wanted <= 0:
            return value / 1e3
    return 0.0


def outage(folder, etcd, ports, nodes, admin, options):
    """The effect of an etcd outage on clients of a node, and the time until all nodes follow again."""
    spans = {}
    for name in ("before", "again", "without etcd"):
        if name == "without etcd":
            etcd.stop()
            time.sleep(1)
        spans[name], failed = load(folder, nodes[1], options.rate, options.seconds)
        points = "   ".join(f"p{share * 100:g} {quantile(spans[name], share):.0f} us" for share in (0.5, 0.9, 0.99, 0.999))
        print(f"load {name:<13} {points}   failed {failed}")
    for name in ("again", "without etcd"):
        print(f"a request of `{name}` takes longer than one of `before` with probability "
              f"{superiority(spans[name], spans['before']):.3f}")
    etcd = start_etcd(folder, *ports)
    begin = time.monotonic()
    askers, status = [Asker(node.http) for node in nodes[1:]], 503
    route = {"uri": "/marker", "plugins": {"mocking": {"response_status": 200, "response_example": "back"}}}
    while status not in (200, 201):
        status, _ = admin.ask("PUT", "/apisix/admin/routes/marker", route)
    while any(one.answer("/marker") != (200, b"back") for one in askers):
        assert time.monotonic() - begin < 30, "a node does not follow"
    print(f"etcd listens again: a write is in force on all nodes after {time.monotonic() - begin:.2f} s")
    return etcd


def run(folder, options):
    upstream, ports = start_upstream(folder), (free_port(), free_port())
    etcd, nodes = start_etcd(folder, *ports), []
    try:
        nodes = [start_node(folder, f"n{at}", ports[0]) for at in range(3)]
        key = single.key_of([folder / f"n{at}.log" for at in range(3)])
        admin = single.Admin(nodes[0].admin, key)
        status, text = admin.ask("PUT", "/apisix/admin/upstreams/up",
                                 {"type": "roundrobin", "nodes": {f"127.0.0.1:{upstream.http}": 1}})
        assert status in (200, 201), text
        single.load_routes(folder, nodes[0].admin, key, options.routes, 16, max(5, options.routes // 1000))
        effective(admin, nodes[1:], options.writes)
        etcd = outage(folder, etcd, ports, nodes, admin, options)
    finally:
        for process in (*nodes, etcd, upstream):
            process.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(".")[0])
    parser.add_argument("--routes", type=int, default=10000)
    parser.add_argument("--writes", type=int, default=200)
    parser.add_argument("--rate", type=int, default=4000)
    parser.add_argument("--seconds", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="yumen-cluster-") as name:
        run(Path(name), options)


if __name__ == "__main__":
    main()

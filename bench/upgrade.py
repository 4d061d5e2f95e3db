#!/usr/bin/env python3
"""Cost of an upgrade for connected clients: failures, cut WebSockets, latency in the seconds around it.

Requests are sent at a constant rate over kept-alive connections; latencies count from the moment a request was due. Each
WebSocket exchanges a message once per second. After some seconds `yumen upgrade` starts a new process that takes over. Another
upgrade is refused while the predecessor has WebSockets, so `--upgrades` above 1 needs `--websockets 0`. Load and upstream share
core 1; the processes of the gateway share core 0.
Usage: bench/upgrade.py [--connections 1000] [--websockets 200] [--rate 2000] [--upgrades 1] [--seconds 10] [--json FILE]
"""

import argparse
import json
import multiprocessing
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from gateways import LOAD_CORE, YUMEN, run_yumen

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ACCEPT = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"
OPEN = (b"GET /ws HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
PING = b"\x89\x85\x00\x00\x00\x00hello"
# Time before and after an upgrade that counts as around it.
BEFORE_S, AFTER_S = 1.0, 3.0


def pin():
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))


def upstream(listener):
    """Responds to requests, and echoes the bytes of WebSockets."""
    pin()
    listener.setblocking(False)
    selector, tunnels = selectors.DefaultSelector(), set()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            stream = key.fileobj
            if stream is listener:
                accepted = listener.accept()[0]
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(accepted, selectors.EVENT_READ)
                continue
            try:
                data = stream.recv(65536)
            except ConnectionError:
                data = b""
            if not data:
                selector.unregister(stream)
                tunnels.discard(stream)
                stream.close()
            elif stream in tunnels:
                stream.sendall(data)
            elif b"websocket" in data:
                tunnels.add(stream)
                stream.sendall(ACCEPT)
            else:
                stream.sendall(ANSWER * data.count(b"\r\n\r\n"))


class Load:
    """All clients, in one thread."""

    def __init__(self, port, options):
        self.port, self.options = port, options
        self.selector = selectors.DefaultSelector()
        self.free, self.waiting = deque(), deque()
        self.latencies, self.failures, self.cut, self.moved, self.pongs = [], [], [], 0, 0
        for _ in range(options.connections):
            self.free.append(self.connect(None))
        self.tunnels = [self.open_tunnel() for _ in range(options.websockets)]

    def connect(self, due):
        stream = socket.create_connection(("127.0.0.1", self.port))
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        state = {"kind": "client", "due": due, "in": b""}
        self.selector.register(stream, selectors.EVENT_READ, state)
        return stream

    def open_tunnel(self):
        stream = socket.create_connection(("127.0.0.1", self.port))
        stream.sendall(OPEN)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += stream.recv(1)
        if b" 101 " not in head:
            sys.exit(f"no WebSocket: {head!r}")
        stream.setblocking(False)
        self.selector.register(stream, selectors.EVENT_READ, {"kind": "tunnel", "owed": 0})
        return stream

    def send(self, stream, due):
        state = self.selector.get_key(stream).data
        state["due"], state["in"] = due, b""
        try:
            stream.send(REQUEST)
        except OSError as error:
            self.fail(stream, error)

    def fail(self, stream, error):
        self.failures.append((time.monotonic(), str(error)))
        self.replace(stream)

    def replace(self, stream):
        self.selector.unregister(stream)
        stream.close()
        self.free.append(self.connect(None))

    def receive(self, stream, state):
        try:
            data = stream.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            data, reason = b"", str(error)
        else:
            reason = "closed"
        if state["kind"] == "tunnel":
            self.hear(stream, state, data, reason)
        elif not data:
            if state["due"] is not None:
                return self.fail(stream, reason)
            # Idle: no request is in flight, so nothing is lost.
            self.free.remove(stream)
            self.replace(stream)
        else:
            state["in"] += data
            if state["in"].endswith(b"\r\n\r\nok"):
                self.answered(stream, state)

    def hear(self, stream, state, data, reason):
        if not data:
            self.cut.append((time.monotonic(), reason))
            self.selector.unregister(stream)
            self.tunnels.remove(stream)
        else:
            state["owed"] -= len(data)
            self.pongs += state["owed"] == 0

    def answered(self, stream, state):
        now = time.monotonic()
        if not state["in"].startswith(b"HTTP/1.1 200"):
            return self.fail(stream, state["in"][:40])
        self.latencies.append((now, now - state["due"]))
        state["due"] = None
        if b"connection: close" in state["in"].lower():
            self.moved += 1
            return self.replace(stream)
        self.free.append(stream)

    def run(self, until):
        """Sends each request when it is due, or as soon as a connection is free."""
        began, count, pinged = time.monotonic(), 0, time.monotonic()
        while (now := time.monotonic()) < until or self.waiting:
            while now < until and began + count / self.options.rate <= now:
                self.waiting.append(began + count / self.options.rate)
                count += 1
            while self.waiting and self.free:
                self.send(self.free.popleft(), self.waiting.popleft())
            if now - pinged >= 1:
                pinged = now
                for tunnel in list(self.tunnels):
                    self.selector.get_key(tunnel).data["owed"] += len(PING)
                    tunnel.send(PING)
            due = began + count / self.options.rate
            for key, _ in self.selector.select(max(0, min(due - time.monotonic(), 0.05))):
                self.receive(key.fileobj, key.data)
            if now > until + 30:
                sys.exit(f"{len(self.waiting)} requests were never sent")


def start(folder, upstream_port):
    upstream = {"nodes": {f"127.0.0.1:{upstream_port}": 1}}
    route = {"id": "1", "uri": "/*", "enable_websocket": True, "upstream": upstream}
    (folder / "routes.yaml").write_text(json.dumps({"routes": [route]}))
    (folder / "data").mkdir()
    (folder / "yumen.yaml").write_text("logs: {access: {enabled: false}}\n")
    gateway = run_yumen(folder / "log", "--config", folder / "yumen.yaml", "--file", folder / "routes.yaml",
                        "--data-dir", folder / "data")
    gateway.wait_listening(gateway.http, 60)
    return gateway


def status(port):
    from urllib.request import urlopen
    return json.load(urlopen(f"http://127.0.0.1:{port}/status"))


def percentiles(latencies):
    ordered = sorted(latencies)
    at = lambda share: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3, 3) if ordered else None
    return {"count": len(ordered), "p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999), "max_ms": at(1)}


def upgrade_now_and_then(folder, options, moments, refused):
    for _ in range(options.upgrades):
        time.sleep(options.seconds)
        began = time.monotonic()
        done = subprocess.run([YUMEN, "upgrade", "--config", folder / "yumen.yaml", "--data-dir", folder / "data"],
                              capture_output=True, text=True)
        moments.append((began, time.monotonic()))
        if done.returncode:
            refused.append(done.stderr.strip())


def measure(folder, gateway, options):
    load, moments, refused = Load(gateway.http, options), [], []
    load.run(time.monotonic() + 2)
    load.latencies.clear()
    upgrading = threading.Thread(target=upgrade_now_and_then, args=(folder, options, moments, refused))
    upgrading.start()
    load.run(time.monotonic() + options.seconds * (options.upgrades + 1))
    upgrading.join()
    is_around = lambda at: any(begin - BEFORE_S <= at <= end + AFTER_S for begin, end in moments)
    # A request belongs to the moment at which it was due.
    around = [latency for at, latency in load.latencies if is_around(at - latency)]
    apart = [latency for at, latency in load.latencies if not is_around(at - latency)]
    return {
        "failures": load.failures, "cut_websockets": load.cut, "websockets": len(load.tunnels), "pongs": load.pongs,
        "moved": load.moved, "refused_upgrades": refused,
        "upgrade_ms": [round((end - begin) * 1e3) for begin, end in moments],
        "apart": percentiles(apart), "around": percentiles(around),
    }


def report(found, options):
    apart, around = found["apart"], found["around"]
    print(f"{options.connections} connections, {options.rate} requests/s, {options.websockets} WebSockets, "
          f"{options.upgrades} upgrades of {', '.join(map(str, found['upgrade_ms']))} ms")
    print(f"{'':8} {'requests':>9} {'p50 ms':>8} {'p99 ms':>8} {'p99.9 ms':>9} {'max ms':>8}")
    for name, row in (("apart", apart), ("around", around)):
        print(f"{name:8} {row['count']:>9} {row['p50_ms']:>8} {row['p99_ms']:>8} {row['p999_ms']:>9} {row['max_ms']:>8}")
    ratio = around["p999_ms"] / apart["p999_ms"]
    failed, cut = len(found["failures"]), len(found["cut_websockets"])
    print(f"failed requests {failed}, cut WebSockets {cut}, connections that moved {found['moved']}, p99.9 around / apart {ratio:.2f}")
    for line in found["refused_upgrades"]:
        print(f"refused: {line}")
    is_met = not failed and not cut and not found["refused_upgrades"] and ratio <= 2
    print("targets met" if is_met else "MISS: none failed, none cut, at most 2")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--websockets", type=int, default=200)
    parser.add_argument("--rate", type=float, default=2000)
    parser.add_argument("--upgrades", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server = multiprocessing.Process(target=upstream, args=(listener,), daemon=True)
    server.start()
    pin()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        gateway = start(folder, listener.getsockname()[1])
        try:
            found = measure(folder, gateway, options)
        finally:
            # The last process is no child of this script; its predecessors exit when their clients have left.
            try:
                os.kill(status(gateway.status)["pid"], signal.SIGTERM)
            except OSError:
                pass
            gateway.stop()
    report(found, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    server.terminate()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""User-space instructions per plain keep-alive request, counted by callgrind: a figure that the
machine's noise cannot reach. Fails above the ratchet in bench/instructions.max.

One client connection, one request at a time, and no samples: at callgrind's pace a far larger share of requests
would be looked at closely than under load, where it is one in 16 at most. Counting starts after a warm-up, so that start-up,
certificates and first allocations are not in it. `--profile FILE` keeps callgrind's output.
"""

import argparse
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import gateways as gw

HERE = Path(__file__).resolve().parent
RATCHET = HERE / "instructions.max"
WARM_UP, SHORT, LONG = 500, 1000, 3000
REPLY = b"HTTP/1.1 200 OK\r\nServer: up\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9080\r\nUser-Agent: count\r\nAccept: */*\r\n\r\n"


class Upstream:
    """Answers every request head with the same small reply."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.http = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = b""
        while data := connection.recv(65536):
            pending += data
            while b"\r\n\r\n" in pending:
                pending = pending.split(b"\r\n\r\n", 1)[1]
                connection.sendall(REPLY)


def exchange(client, count):
    """So many requests, one after another."""
    for _ in range(count):
        client.sendall(REQUEST)
        reply = b""
        while not reply.endswith(b"hello\n"):
            data = client.recv(65536)
            if not data:
                sys.exit(f"instructions: the gateway closed after {reply!r}")
            reply += data
        if not reply.startswith(b"HTTP/1.1 200"):
            sys.exit(f"instructions: unexpected answer {reply[:200]!r}")


def control(pid, action):
    """Asks the running callgrind to zero its counters or to write them out."""
    run = subprocess.run(["callgrind_control", action, str(pid)], capture_output=True, text=True, timeout=120)
    if run.returncode != 0:
        sys.exit(f"instructions: callgrind_control {action}: {run.stderr or run.stdout}")


def counted(output, dump):
    """The instructions of one dump's busiest thread, the worker: what other threads do in the meantime, at
    callgrind's pace, is no cost of a request."""
    threads = {}
    for part in output.parent.glob(f"{output.name}.{dump}-*"):
        text = part.read_text(errors="replace")
        threads[part] = max(int(n) for n in re.findall(r"^(?:summary|totals): (\d+)", text, re.M))
    busiest = max(threads, key=threads.get)
    return threads[busiest], busiest


def per_request(pid, client, output):
    """Instructions of LONG requests less those of SHORT, per request: fixed costs cancel out."""
    exchange(client, WARM_UP)
    control(pid, "-z")
    exchange(client, SHORT)
    control(pid, "-d")
    short, _ = counted(output, 1)
    exchange(client, LONG)
    control(pid, "-d")
    long, dump = counted(output, 2)
    return (long - short) / (LONG - SHORT), dump


def start(kind, folder, upstream):
    """The gateway under callgrind, listening; and where its dumps go."""
    output = folder / "callgrind.out"
    under = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--fair-sched=try",
             "--separate-threads=yes"]
    cert = gw.make_certificate(folder)
    if kind == "nginx":
        return gw.start_nginx(folder, kind, "plain", upstream, cert, under=under), output
    gateway = gw.start_yumen(folder, kind, "plain", upstream, cert, core=None, wait=False, under=under)
    gateway.wait_listening(gateway.http, 120)
    return gateway, output


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(".")[0])
    parser.add_argument("--gateway", choices=("yumen", "nginx"), default="yumen", help="nginx: for comparison")
    parser.add_argument("--profile", type=Path, help="keep callgrind's output of the counted requests here")
    options = parser.parse_args()
    if options.gateway == "yumen" and not gw.YUMEN.exists():
        sys.exit(f"instructions: {gw.YUMEN} does not exist (make build)")
    # Ends through the finally block, so that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ratchet = int(RATCHET.read_text())
    gw.YUMEN_NODE = "observe: {samples_per_second: 0}\n"
    with tempfile.TemporaryDirectory(prefix="yumen-count-") as name:
        folder = Path(name)
        gateway, output = start(options.gateway, folder, Upstream())
        try:
            with socket.create_connection(("127.0.0.1", gateway.http), 60) as client:
                client.settimeout(60)
                found, dump = per_request(gateway.child.pid, client, output)
                if options.profile:
                    shutil.copy(dump, options.profile)
        finally:
            gateway.stop()
    if options.gateway != "yumen":
        print(f"instructions per plain request of {options.gateway}: {found:.0f}")
        return
    print(f"instructions per plain request: {found:.0f} (at most {ratchet})")
    if found > ratchet:
        sys.exit("instructions: above the ratchet; look with --profile and callgrind_annotate")
    if found < 0.9 * ratchet:
        print(f"well below the ratchet: {RATCHET.relative_to(gw.ROOT)} may come down")


if __name__ == "__main__":
    main()

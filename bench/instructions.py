#!/usr/bin/env python3
"""User-space instructions per request, counted by callgrind: a figure that the machine's noise cannot reach.
Fails above the ratchet in bench/instructions.max, which has a line for each scenario.

`plain` is one client connection and one keep-alive request at a time. The others have h2load for a client and the
benchmark's servers behind: many requests at once, over HTTP/2 on either side. No samples are taken: at callgrind's pace a far larger
share of requests would be looked at closely than under load, where it is one in 16 at most. Counting starts after a warm-up, so that
start-up, certificates and first allocations are not in it. `--profile FILE` keeps callgrind's output.
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
from dataclasses import dataclass
from pathlib import Path

import gateways as gw

HERE = Path(__file__).resolve().parent
RATCHET = HERE / "instructions.max"
WARM_UP, SHORT, LONG = 500, 1000, 3000
REPLY = b"HTTP/1.1 200 OK\r\nServer: up\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9080\r\nUser-Agent: count\r\nAccept: */*\r\n\r\n"


@dataclass(frozen=True)
class Scenario:
    """What h2load asks for, and of which configuration."""
    flavour: str
    connections: int
    streams: int = 0         # requests at once on a connection of HTTP/2; 0 is HTTP/1.1
    call: bool = False       # each request is a gRPC call


SCENARIOS = {
    "plain": None,
    "plain-64": Scenario("plain", 64),
    "h2c-upstream": Scenario("h2c-upstream", 64),
    "h2": Scenario("plain", 4, 100),
    "grpc": Scenario("grpc", 4, 25, call=True),
}


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


def load_streams(gateway, scenario, count):
    """So many requests by h2load, many at once."""
    args = ["h2load", "-t1", f"-n{count}", f"-c{scenario.connections}"]
    args += [f"-m{scenario.streams}"] if scenario.streams else ["--h1"]
    path = "/"
    if scenario.call:
        path = gw.CALL
        args += ["-d", gw.call_body(), "-H", "content-type: application/grpc", "-H", "te: trailers"]
    run = subprocess.run([*map(str, args), gateway.url(path=path)], capture_output=True, text=True, timeout=600)
    if f"status codes: {count} 2xx" not in run.stdout:
        sys.exit(f"instructions: h2load: {(run.stderr or run.stdout).strip()[-400:]}")


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


def per_request(pid, ask, output):
    """Instructions of LONG requests less those of SHORT, per request: fixed costs cancel out."""
    ask(WARM_UP)
    control(pid, "-z")
    ask(SHORT)
    control(pid, "-d")
    short, _ = counted(output, 1)
    ask(LONG)
    control(pid, "-d")
    long, dump = counted(output, 2)
    return (long - short) / (LONG - SHORT), dump


def start(kind, flavour, folder, upstream):
    """The gateway under callgrind, listening; and where its dumps go."""
    output = folder / "callgrind.out"
    under = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--fair-sched=try",
             "--separate-threads=yes"]
    cert = gw.make_certificate(folder)
    if kind == "nginx":
        return gw.start_nginx(folder, kind, flavour, upstream, cert, under=under), output
    gateway = gw.start_yumen(folder, kind, flavour, upstream, cert, core=None, wait=False, under=under)
    gateway.wait_listening(gateway.http, 120)
    return gateway, output


def count(kind, name, folder, profile):
    """Instructions per request of a scenario; `None` where its servers are not installed."""
    scenario = SCENARIOS[name]
    beside = []
    if scenario:
        upstream = gw.start_upstream(folder)
        beside = [gw.start_grpc(folder, upstream), upstream] if scenario.call else [upstream]
    else:
        upstream = Upstream()
    try:
        if None in beside:
            return None
        gateway, output = start(kind, scenario.flavour if scenario else "plain", folder, upstream)
        try:
            if scenario:
                ask = lambda requests: load_streams(gateway, scenario, requests)
            else:
                client = socket.create_connection(("127.0.0.1", gateway.http), 60)
                client.settimeout(60)
                ask = lambda requests: exchange(client, requests)
            found, dump = per_request(gateway.child.pid, ask, output)
            if profile:
                shutil.copy(dump, profile)
            return found
        finally:
            gateway.stop()
    finally:
        for server in filter(None, beside):
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(".")[0])
    parser.add_argument("scenarios", nargs="*", default=["plain"], metavar="scenario",
                        help=f"of {', '.join(SCENARIOS)}; plain if none is named")
    parser.add_argument("--gateway", choices=("yumen", "nginx"), default="yumen", help="nginx: for comparison")
    parser.add_argument("--profile", type=Path, help="keep callgrind's output of the counted requests here")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; there are: {' '.join(SCENARIOS)}")
    if options.gateway == "yumen" and not gw.YUMEN.exists():
        sys.exit(f"instructions: {gw.YUMEN} does not exist (make build)")
    # Ends through the finally block, so that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ratchets = {name: int(most) for name, most in map(str.split, RATCHET.read_text().splitlines())}
    gw.YUMEN_NODE = "observe: {samples_per_second: 0}\n"
    above = []
    for name in options.scenarios:
        with tempfile.TemporaryDirectory(prefix="yumen-count-") as folder:
            found = count(options.gateway, name, Path(folder), options.profile)
        if found is None:
            print(f"{name}: left out, scripts/deps.sh conformance builds its server", flush=True)
        elif options.gateway != "yumen":
            print(f"instructions per request of {options.gateway}, {name}: {found:.0f}", flush=True)
        else:
            most = ratchets[name]
            print(f"instructions per request, {name}: {found:.0f} (at most {most})", flush=True)
            if found > most:
                above.append(name)
            if found < 0.9 * most:
                print(f"well below the ratchet: {RATCHET.relative_to(gw.ROOT)} may come down", flush=True)
    if above:
        sys.exit(f"instructions: above the ratchet: {', '.join(above)}; look with --profile and callgrind_annotate")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""User-space instructions per unit of work, counted by callgrind and so independent of the noise of the machine.
Fails above the ratchets in bench/instructions.max. Usage: bench/instructions.py [SCENARIO]...

  plain      a request on a kept-alive connection
  close      a request on a connection of its own
  websocket  an echoed message: to the endpoint and back
  gateway    as plain, on a listener of the configuration with two scopes of different hosts
  jwt-jwks   as plain, with a bearer token that openid-connect verifies by the keys of its provider
  oidc-session  as plain, with the cookie of a session of openid-connect
  http-logger   as plain, logged by http-logger
  otel-1pct     as plain, of which opentelemetry samples one in a hundred

These have one client and one unit at a time. The others use h2load and the servers of the benchmark, with many concurrent
requests, more than the spare state that a worker keeps for its next requests:

  plain-64      64 connections of HTTP/1.1
  h2            100 streams on each of 4 connections, to an endpoint of HTTP/1.1
  h2c-upstream  as plain-64, to an endpoint of HTTP/2
  grpc          25 calls on each of 4 connections
  mock          as plain-64, with a response from the gateway itself
  limit-count   as plain-64, with limit-count and its quota fields in the response

h2c-upstream, grpc, mock and limit-count run only when named. The ratchet of gateway is at most 1.02 times the count of plain.

Sampling is off: at the speed of callgrind a far larger share of requests would be sampled than under load, where it is at
most one in 16. Counting starts after a warm-up, so start-up, certificates and first allocations are not included.
`--profile FOLDER` keeps the output of callgrind.
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
import time
from dataclasses import dataclass
from pathlib import Path

import counterparts
import gateways as gw
from websockets import ACCEPT, connect, frame

HERE = Path(__file__).resolve().parent
RATCHETS = HERE / "instructions.max"
WARM_UP, SHORT, LONG = 500, 1000, 3000
REPLY = b"HTTP/1.1 200 OK\r\nServer: up\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9080\r\nUser-Agent: count\r\nAccept: */*\r\n\r\n"
LAST_REQUEST = REQUEST[:-2] + b"Connection: close\r\n\r\n"
MESSAGE = frame(131)


class Upstream:
    """Responds to every request head with the same small response; echoes after an upgrade."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.http = self.listener.getsockname()[1]
        self.counterpart = self.receiver = None
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
                head, pending = pending.split(b"\r\n\r\n", 1)
                if b"\r\nupgrade:" in head.lower():
                    return self.echo(connection)
                connection.sendall(REPLY)

    @staticmethod
    def echo(connection):
        connection.sendall(ACCEPT)
        while data := connection.recv(65536):
            connection.sendall(data)


def receive(client, is_whole):
    """Reads until a response is complete; returns all bytes."""
    reply = b""
    while not is_whole(reply):
        data = client.recv(65536)
        if not data:
            sys.exit(f"instructions: the gateway closed after {reply!r}")
        reply += data
    return reply


def ask(client, request):
    client.sendall(request)
    reply = receive(client, lambda reply: reply.endswith(b"hello\n"))
    if not reply.startswith(b"HTTP/1.1 200"):
        sys.exit(f"instructions: unexpected answer {reply[:200]!r}")


def open_client(port):
    client = socket.create_connection(("127.0.0.1", port), 60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.settimeout(60)
    return client


def plain(gateway):
    """Sends this number of requests on one connection."""
    client = open_client(gateway.http)
    request = REQUEST[:-2] + "".join(f"{field}\r\n" for field in gateway.fields).encode() + b"\r\n"
    while True:
        for _ in range((yield)):
            ask(client, request)


def close(gateway):
    """Sends this number of requests, each on its own connection up to its end."""
    while True:
        for _ in range((yield)):
            with open_client(gateway.http) as client:
                ask(client, LAST_REQUEST)
                client.recv(1)


def websocket(gateway):
    """Sends this number of messages to be echoed."""
    client = connect(gateway.http)
    client.settimeout(60)
    while True:
        for _ in range((yield)):
            client.sendall(MESSAGE)
            receive(client, lambda reply: len(reply) >= len(MESSAGE))


@dataclass(frozen=True)
class Streams:
    """Sends this number of requests by h2load, many at once."""
    connections: int
    streams: int = 0 # HTTP/2 streams in flight per connection; 0 is HTTP/1.1
    call: bool = False       # each request is a gRPC call

    def __call__(self, gateway):
        args = ["h2load", "-t1", f"-c{self.connections}"]
        args += [f"-m{self.streams}"] if self.streams else ["--h1"]
        if self.call:
            args += ["-d", gw.call_body(), "-H", "content-type: application/grpc", "-H", "te: trailers"]
        url = gateway.url(path=gw.CALL if self.call else "/")
        while True:
            count = yield
            run = subprocess.run([*map(str, args), f"-n{count}", url], capture_output=True, text=True, timeout=600)
            if f"status codes: {count} 2xx" not in run.stdout:
                sys.exit(f"instructions: h2load: {(run.stderr or run.stdout).strip()[-400:]}")


LOGINS_AND_LOGS = ("jwt-jwks", "oidc-session", "http-logger", "otel-1pct")
# The work and the configuration of each scenario; "upgrade" is plain, with WebSockets.
SCENARIOS = {
    "plain": (plain, "upgrade"),
    "close": (close, "upgrade"),
    "websocket": (websocket, "upgrade"),
    "plain-64": (Streams(64), "plain"),
    "h2c-upstream": (Streams(64), "h2c-upstream"),
    "h2": (Streams(4, 100), "plain"),
    "grpc": (Streams(4, 25, call=True), "grpc"),
    "mock": (Streams(64), "mock"),
    "limit-count": (Streams(64), "limit-count"),
    "gateway": (plain, "gateway"),
    **{name: (plain, name) for name in LOGINS_AND_LOGS},
}
USUAL = ("plain", "gateway", "close", "websocket", "plain-64", "h2", *LOGINS_AND_LOGS)


def control(pid, action):
    """Makes the running callgrind reset its counters or write them out."""
    run = subprocess.run(["callgrind_control", action, str(pid)], capture_output=True, text=True, timeout=120)
    if run.returncode != 0:
        sys.exit(f"instructions: callgrind_control {action}: {run.stderr or run.stdout}")


class Dumps:
    """The output of a process under callgrind."""

    def __init__(self, pid, output):
        self.pid, self.output, self.count = pid, output, 0

    def next(self):
        """The instructions of the worker, its busiest thread, since the last dump, and the file. Other threads run at
        callgrind's pace meanwhile, which is no cost of a request."""
        control(self.pid, "-d")
        self.count += 1
        threads = {}
        for part in self.output.parent.glob(f"{self.output.name}.{self.count}-*"):
            text = part.read_text(errors="replace")
            threads[part] = max(int(n) for n in re.findall(r"^(?:summary|totals): (\d+)", text, re.M))
        busiest = max(threads, key=threads.get)
        return threads[busiest], busiest


def per_unit(work, dumps):
    """Instructions of LONG units minus those of SHORT, per unit: fixed costs cancel out."""
    next(work)
    work.send(WARM_UP)
    control(dumps.pid, "-z")
    work.send(SHORT)
    short, _ = dumps.next()
    work.send(LONG)
    long, dump = dumps.next()
    return (long - short) / (LONG - SHORT), dump


def start(kind, flavour, folder, upstream):
    """The gateway under callgrind, and the prefix of its dumps."""
    output = folder / "callgrind.out"
    under = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--fair-sched=try",
             "--separate-threads=yes"]
    cert = gw.make_certificate(folder)
    if kind == "nginx":
        return gw.start_nginx(folder, kind, flavour, upstream, cert, under=under), output
    gateway = gw.start_yumen(folder, kind, flavour, upstream, cert, core=None, wait=False, under=under)
    # The socket listens before the first configuration is in force, which takes seconds under callgrind.
    end = time.monotonic() + 120
    while " is ready" not in Path(gateway.log_path).read_text(errors="replace"):
        if gateway.child.poll() is not None or time.monotonic() > end:
            sys.exit(f"instructions: the gateway is not ready: {gateway.log_path}")
        time.sleep(0.1)
    return gateway, output


def count(kind, name, folder, profile):
    """Instructions per unit of a scenario; `None` where its servers are not installed."""
    do, flavour = SCENARIOS[name]
    running = []
    try:
        if isinstance(do, Streams):
            upstream = gw.start_upstream(folder)
            running.append(upstream)
        else:
            upstream = Upstream()
        if name in LOGINS_AND_LOGS:
            upstream.counterpart = counterparts.Counterpart(folder)
            upstream.receiver = upstream.counterpart.port
            running.append(upstream.counterpart)
        if flavour == "h2c-upstream":
            running.append(gw.start_either(folder, upstream))
        if flavour == "grpc":
            service = gw.start_grpc(folder, upstream)
            if not service:
                return None
            running.append(service)
        gateway, output = start(kind, flavour, folder, upstream)
        running.append(gateway)
        gateway.fields = counterparts.fields(flavour, gateway.http, upstream.counterpart)
        found, dump = per_unit(do(gateway), Dumps(gateway.child.pid, output))
        if profile:
            profile.mkdir(parents=True, exist_ok=True)
            shutil.copy(dump, profile / f"{kind}.{name}")
        return found
    finally:
        for program in reversed(running):
            program.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--gateway", choices=("yumen", "nginx"), default="yumen", help="nginx: for comparison")
    parser.add_argument("scenarios", nargs="*", default=USUAL, metavar="scenario",
                        help=f"of {', '.join(SCENARIOS)}; default: {', '.join(USUAL)}")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="keep callgrind's output of the counted units here")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; there are: {' '.join(SCENARIOS)}")
    if options.gateway == "yumen" and not gw.YUMEN.exists():
        sys.exit(f"instructions: {gw.YUMEN} does not exist (make build)")
    # Exits through the finally block, which stops the started programs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ratchets = {scenario: int(most) for scenario, most in map(str.split, RATCHETS.read_text().splitlines())}
    gw.YUMEN_NODE = "observe: {samples_per_second: 0}\n"
    above = []
    for name in options.scenarios:
        with tempfile.TemporaryDirectory(prefix="yumen-count-") as folder:
            found = count(options.gateway, name, Path(folder), options.profile)
        if found is None:
            print(f"{name}: left out, scripts/deps.sh conformance builds its server", flush=True)
        elif options.gateway != "yumen":
            print(f"{name:<13}{found:>7.0f} instructions of {options.gateway}", flush=True)
        else:
            most = ratchets[name]
            print(f"{name:<13}{found:>7.0f} instructions (at most {most})", flush=True)
            if found > most:
                above.append(name)
            if found < 0.9 * most:
                print(f"well below the ratchet: {RATCHETS.relative_to(gw.ROOT)} may come down", flush=True)
    if above:
        sys.exit(f"instructions: above the ratchet: {', '.join(above)}; look with --profile and callgrind_annotate")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""User-space instructions per unit of work, counted by callgrind: figures that the machine's noise cannot reach.
Fails above the ratchets in bench/instructions.max.

  plain      a request on a connection that is kept
  close      a request on a connection of its own
  websocket  a message that is echoed: to the endpoint and back

One client, one unit at a time, and no samples: at callgrind's pace a far larger share of requests
would be looked at closely than under load, where it is one in 16 at most. Counting starts after a warm-up, so that start-up,
certificates and first allocations are not in it. `--profile FOLDER` keeps callgrind's output.
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
from websockets import ACCEPT, connect, frame

HERE = Path(__file__).resolve().parent
RATCHETS = HERE / "instructions.max"
WARM_UP, SHORT, LONG = 500, 1000, 3000
REPLY = b"HTTP/1.1 200 OK\r\nServer: up\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9080\r\nUser-Agent: count\r\nAccept: */*\r\n\r\n"
LAST_REQUEST = REQUEST[:-2] + b"Connection: close\r\n\r\n"
MESSAGE = frame(131)


class Upstream:
    """Answers every request head with the same small reply; echoes once it was asked to change protocols."""

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
    """What came until it was whole; all of it."""
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


def plain(port):
    """Does so many requests on one connection."""
    client = open_client(port)
    while True:
        for _ in range((yield)):
            ask(client, REQUEST)


def close(port):
    """Does so many requests, each on a connection that is seen to end."""
    while True:
        for _ in range((yield)):
            with open_client(port) as client:
                ask(client, LAST_REQUEST)
                client.recv(1)


def websocket(port):
    """Has so many messages echoed."""
    client = connect(port)
    client.settimeout(60)
    while True:
        for _ in range((yield)):
            client.sendall(MESSAGE)
            receive(client, lambda reply: len(reply) >= len(MESSAGE))


SCENARIOS = {"plain": plain, "close": close, "websocket": websocket}


def control(pid, action):
    """Asks the running callgrind to zero its counters or to write them out."""
    run = subprocess.run(["callgrind_control", action, str(pid)], capture_output=True, text=True, timeout=120)
    if run.returncode != 0:
        sys.exit(f"instructions: callgrind_control {action}: {run.stderr or run.stdout}")


class Dumps:
    """What a process under callgrind has written."""

    def __init__(self, pid, output):
        self.pid, self.output, self.count = pid, output, 0

    def next(self):
        """The instructions since the last dump of its busiest thread, the worker, and its file: what other threads
        do in the meantime, at callgrind's pace, is no cost of a request."""
        control(self.pid, "-d")
        self.count += 1
        threads = {}
        for part in self.output.parent.glob(f"{self.output.name}.{self.count}-*"):
            text = part.read_text(errors="replace")
            threads[part] = max(int(n) for n in re.findall(r"^(?:summary|totals): (\d+)", text, re.M))
        busiest = max(threads, key=threads.get)
        return threads[busiest], busiest


def per_unit(scenario, port, dumps):
    """Instructions of LONG units less those of SHORT, per unit: fixed costs cancel out."""
    work = scenario(port)
    next(work)
    work.send(WARM_UP)
    control(dumps.pid, "-z")
    work.send(SHORT)
    short, _ = dumps.next()
    work.send(LONG)
    long, dump = dumps.next()
    return (long - short) / (LONG - SHORT), dump


def start(kind, folder, upstream):
    """The gateway under callgrind, listening; and where its dumps go."""
    output = folder / "callgrind.out"
    under = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--fair-sched=try",
             "--separate-threads=yes"]
    cert = gw.make_certificate(folder)
    if kind == "nginx":
        return gw.start_nginx(folder, kind, "upgrade", upstream, cert, under=under), output
    gateway = gw.start_yumen(folder, kind, "upgrade", upstream, cert, core=None, wait=False, under=under)
    gateway.wait_listening(gateway.http, 120)
    return gateway, output


def count(options):
    """Instructions per unit of each scenario."""
    gw.YUMEN_NODE = "observe: {samples_per_second: 0}\n"
    found = {}
    with tempfile.TemporaryDirectory(prefix="yumen-count-") as name:
        folder = Path(name)
        gateway, output = start(options.gateway, folder, Upstream())
        try:
            dumps = Dumps(gateway.child.pid, output)
            for scenario in options.scenarios.split(","):
                found[scenario], dump = per_unit(SCENARIOS[scenario], gateway.http, dumps)
                if options.profile:
                    options.profile.mkdir(parents=True, exist_ok=True)
                    shutil.copy(dump, options.profile / f"{options.gateway}.{scenario}")
        finally:
            gateway.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--gateway", choices=("yumen", "nginx"), default="yumen", help="nginx: for comparison")
    parser.add_argument("--scenarios", default=",".join(SCENARIOS), help="default: %(default)s")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="keep callgrind's output of the counted units here")
    options = parser.parse_args()
    if options.gateway == "yumen" and not gw.YUMEN.exists():
        sys.exit(f"instructions: {gw.YUMEN} does not exist (make build)")
    # Ends through the finally block, so that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ratchets = {scenario: int(most) for scenario, most in map(str.split, RATCHETS.read_text().splitlines())}
    failed = False
    for scenario, found in count(options).items():
        if options.gateway != "yumen":
            print(f"{scenario:<10} {found:6.0f} instructions of {options.gateway}")
            continue
        most = ratchets[scenario]
        print(f"{scenario:<10} {found:6.0f} instructions (at most {most})")
        failed |= found > most
        if found < 0.9 * most:
            print(f"well below the ratchet: {RATCHETS.relative_to(gw.ROOT)} may come down")
    if failed:
        sys.exit("instructions: above the ratchet; look with --profile and callgrind_annotate")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Cost of a WebSocket message: frames sent through each gateway and echoed, in CPU time per round trip.

All gateways run on core 0 with one worker each and are measured in random order; client and echo server share core 1. Each
connection sends its next frame when the previous one has returned, so the gateway forwards two messages per round trip.
Usage: bench/websockets.py [--rounds 5] [--seconds 3] [--connections 64] [--frame-bytes 131]
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import tempfile
from pathlib import Path

from gateways import GATEWAY_CORE, LOAD_CORE, ROOT, Process, free_port, nginx, on_core, run_yumen

ENDS = ROOT / "target/bench/websockets"

OPEN = (b"GET /ws HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
ACCEPT = (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
          b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")


def connect(port):
    """An open WebSocket."""
    client = socket.create_connection(("127.0.0.1", port), 10)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.sendall(OPEN)
    reply = b""
    while b"\r\n\r\n" not in reply:
        reply += client.recv(4096) or exit("a gateway closed the handshake")
    if not reply.startswith(b"HTTP/1.1 101"):
        exit(f"a gateway refused the handshake: {reply[:100]!r}")
    return client


def frame(length):
    """A masked binary frame of this size, including its head."""
    head, body = (6, length - 6) if length - 6 < 126 else (8, length - 8)
    text = bytes([0x82, 0x80 | body]) if head == 6 else bytes([0x82, 0xFE]) + body.to_bytes(2, "big")
    return text + os.urandom(4 + body)


def make():
    """Both ends, in C: in Python they would be the bottleneck instead of the gateway."""
    ENDS.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cc", "-O2", "-Wall", "-o", ENDS, ROOT / "bench/websockets.c"], check=True)


def measure(gateway, options):
    """CPU microseconds per round trip, and round trips per second."""
    words = [ENDS, "load", gateway.port, options.connections, options.seconds, options.frame_bytes]
    before = gateway.cpu_ns()
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True, preexec_fn=on_core(LOAD_CORE),
                         timeout=options.seconds + 60)
    spent = gateway.cpu_ns() - before
    if run.returncode != 0:
        exit(f"the client ended with {run.returncode}: {run.stderr.strip()}")
    trips, wall = int(run.stdout.split()[0]), float(run.stdout.split()[1])
    return spent / 1e3 / trips, trips / wall


def start_yumen(folder, port_of_echo):
    own = folder / "yumen"
    own.mkdir()
    route = {"id": "ws", "uri": "/ws", "enable_websocket": True, "upstream": {"nodes": {f"127.0.0.1:{port_of_echo}": 1}}}
    (own / "routes.yaml").write_text(json.dumps({"routes": [route]}))
    gateway = run_yumen(own / "log", "--file", own / "routes.yaml", "--data-dir", own / "data")
    gateway.port = gateway.http
    return gateway


def start_nginx(folder, port_of_echo):
    port = free_port()
    gateway = nginx(folder, "nginx", f"""
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{port_of_echo}; proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
    }}
  }}
""", GATEWAY_CORE)
    gateway.port = port
    return gateway


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--frame-bytes", type=int, default=131)
    options = parser.parse_args()
    make()
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        echoing = Process([ENDS, "echo", port], folder / "echo.log", LOAD_CORE)
        gateways = {"yumen": start_yumen(folder, port), "nginx": start_nginx(folder, port)}
        rounds = []
        try:
            for gateway in gateways.values():
                gateway.wait_listening(gateway.port, 60)
            for _ in range(options.rounds):
                order = random.sample(sorted(gateways), len(gateways))
                rounds.append({one: measure(gateways[one], options) for one in order})
        finally:
            for gateway in gateways.values():
                gateway.stop()
            echoing.stop()
    print(f"{options.connections} connections, frames of {options.frame_bytes} bytes, {options.rounds} rounds")
    for one in gateways:
        cpu = statistics.median(each[one][0] for each in rounds)
        ratio = statistics.median(each[one][0] / each["nginx"][0] for each in rounds)
        rate = statistics.median(each[one][1] for each in rounds)
        print(f"{one:<8} {cpu:7.2f} us of CPU per round trip   {ratio:5.3f} of nginx   {rate:8.0f} round trips/s")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Cost of forwarding bytes: TCP streams in 64 KiB writes through each gateway, in bytes per CPU second.

Gateways run at once on core 0, one worker each, and take turns in random order; the sender and the sink share core 1.
`haproxy` is HAProxy as configured in most places, `haproxy-splice` with `option splice-auto`.
Usage: bench/streams.py [--rounds 5] [--seconds 3] [--connections 4] [--write-bytes 65536] [--json FILE]
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import tempfile
import time
from pathlib import Path

from gateways import GATEWAY_CORE, LOAD_CORE, Gateway, free_port, run_yumen

HAPROXY = """
global
  nbthread 1
  maxconn 4096
defaults
  mode tcp
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  {option}
listen l
  bind 127.0.0.1:{port}
  server s 127.0.0.1:{sink}
"""


def pin():
    os.sched_setaffinity(0, {LOAD_CORE} & os.sched_getaffinity(0) or os.sched_getaffinity(0))


def sink(listener):
    """Reads from all connections concurrently."""
    pin()
    import selectors
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    room = bytearray(1 << 20)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            elif is_over(key.fileobj, room):
                selector.unregister(key.fileobj)
                key.fileobj.close()


def is_over(connection, room):
    """A gateway that is stopped resets its connections."""
    try:
        return not connection.recv_into(room)
    except ConnectionResetError:
        return True


def send(port, options, seconds):
    """Writes as fast as the connection accepts; returns the number of bytes."""
    import selectors
    block = memoryview(os.urandom(options.write_bytes))
    selector = selectors.DefaultSelector()
    for _ in range(options.connections):
        client = socket.create_connection(("127.0.0.1", port))
        client.setblocking(False)
        selector.register(client, selectors.EVENT_WRITE)
    sent, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in selector.select(1):
            sent += key.fileobj.send(block)
    for key in list(selector.get_map().values()):
        key.fileobj.close()
    return sent


def start_haproxy(folder, name, sink_port, option=""):
    port = free_port()
    conf = folder / f"{name}.cfg"
    conf.write_text(HAPROXY.format(port=port, sink=sink_port, option=option))
    program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    gateway = Gateway([program, "-db", "-f", conf], folder / f"{name}.log", GATEWAY_CORE)
    gateway.port = port
    return gateway


def start_yumen(folder, name, sink_port):
    own = folder / name
    own.mkdir()
    port = free_port()
    (own / "yumen.yaml").write_text(f"stream_listen: [{{address: '127.0.0.1:{port}'}}]\n")
    routes = {"stream_routes": [{"id": "s", "upstream": {"nodes": {f"127.0.0.1:{sink_port}": 1}, "scheme": "tcp"}}]}
    (own / "routes.yaml").write_text(json.dumps(routes))
    gateway = run_yumen(own / "log", "--config", own / "yumen.yaml", "--file", own / "routes.yaml", "--data-dir", own / "data")
    gateway.port = port
    return gateway


def measure(gateway, options):
    """Bytes per CPU second, and per second."""
    time.sleep(0.05)
    before, began = gateway.cpu_ns(), time.monotonic()
    sent = send(gateway.port, options, options.seconds)
    time.sleep(0.05)
    cpu_s, wall_s = (gateway.cpu_ns() - before) / 1e9, time.monotonic() - began
    return sent / cpu_s, sent / wall_s


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--write-bytes", type=int, default=65536)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    sink_port = listener.getsockname()[1]
    reader = multiprocessing.Process(target=sink, args=(listener,), daemon=True)
    reader.start()
    pin()
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        gateways = {
            "yumen": start_yumen(folder, "yumen", sink_port),
            "haproxy": start_haproxy(folder, "haproxy", sink_port),
            "haproxy-splice": start_haproxy(folder, "haproxy-splice", sink_port, "option splice-auto"),
        }
        try:
            for gateway in gateways.values():
                gateway.wait_listening(gateway.port, 60)
            for _ in range(options.rounds):
                order = random.sample(sorted(gateways), len(gateways))
                rounds.append({name: measure(gateways[name], options) for name in order})
        finally:
            for gateway in gateways.values():
                gateway.stop()
            reader.terminate()
    print(f"{options.connections} connections, writes of {options.write_bytes} bytes, {options.rounds} rounds")
    for name in rounds[0]:
        per_cpu = statistics.median(one[name][0] for one in rounds) / 1e9
        per_wall = statistics.median(one[name][1] for one in rounds) / 1e9
        ratio = statistics.median(one["yumen"][0] / one[name][0] for one in rounds)
        print(f"{name:15} {per_cpu:6.2f} GB per CPU second  {per_wall:6.2f} GB/s   yumen moves {ratio:5.2f} times as much per CPU")
    if options.json:
        options.json.write_text(json.dumps(rounds))


if __name__ == "__main__":
    main()

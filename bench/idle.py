#!/usr/bin/env python3
"""Memory of idle connections: resident bytes per connection of yumen beside NGINX, without and with TLS.

Each gateway is started anew, with one worker; the load generator of the lab opens the connections, sends one request on each
and keeps them open while the memory of the gateway is read. Kernel memory is not included, for any gateway.
Usage: bench/idle.py [--connections 10000] [--entrants yumen,nginx] [--rounds 3] [--json FILE]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import gateways as gw

LAB = Path(os.environ.get("YUMEN_BENCH", gw.ROOT / "target/dist/yumen-bench"))
# Limit of a TLS connection beyond a plain one; the TLS library uses all of it.
TARGET_BYTES = 12 * 1024


def measure(folder, name, tls, connections, upstream, cert):
    """Resident bytes per connection of a fresh gateway."""
    gateway = gw.START[name](folder, f"{name}-{'tls' if tls else 'plain'}", "plain", upstream, cert)
    try:
        # One load before the measurement, so that the allocations of the first request exist.
        assert gw.answers(gateway.url(), 30) is not None, f"{name} does not answer"
        pids = [part for pid in gateway.pids() for part in ("--pid", str(pid))][:2]
        run = subprocess.run(
            [LAB, "load", gateway.url(tls), "--connections", str(connections), "--idle", "2s", "--json", "-", "-q", *pids],
            capture_output=True, text=True, timeout=600)
        if run.returncode:
            raise RuntimeError(f"{name}: {run.stderr[-500:]}")
        idle = json.loads(run.stdout)["idle"]
        if idle["held"] < connections or idle["lost"]:
            raise RuntimeError(f"{name}: {idle['held']} of {connections} connections were held, {idle['lost']} lost")
        return idle["rss_per_connection_bytes"]
    finally:
        gateway.stop()
        shutil.rmtree(folder / f"{name}-{'tls' if tls else 'plain'}", ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--entrants", default="yumen,nginx")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(prefix="yumen-idle-") as name:
        folder = Path(name)
        cert = gw.make_certificate(folder)
        upstream = gw.start_upstream(folder)
        try:
            for _ in range(options.rounds):
                for entrant in options.entrants.split(","):
                    for tls in (False, True):
                        bytes_each = measure(folder, entrant, tls, options.connections, upstream, cert)
                        found.setdefault(f"{entrant} {'TLS' if tls else 'plain'}", []).append(bytes_each)
        finally:
            upstream.stop()
    print(f"{options.connections} connections held, bytes each, median of {options.rounds}")
    for what, rounds in found.items():
        each = statistics.median(rounds)
        miss = "  MISS" if what == "yumen TLS" and each > TARGET_BYTES else ""
        print(f"  {what:<14} {each:>8.0f}{miss}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""CPU per response of the load generator beside wrk's, and its HTTP/2 counts beside h2load's.

NGINX with one worker on core 0 responds from memory; the generators take turns on core 1, in random order. The
ratio is the median of the ratios within rounds. Target: at most 15 % above the CPU time of wrk per response.
A missed target is printed and never fails the build, because of the noise; differing counts do fail it.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from statistics import median

import gateways as gw

BENCH = Path(os.environ.get("YUMEN_BENCH", gw.ROOT / "target/dist/yumen-bench"))
GOAL = 1.15
# name, path, connections, TLS, a connection per request
SCENARIOS = [
    ("plain-16", "/", 16, False, False),
    ("plain-128", "/", 128, False, False),
    ("1k", "/1k", 16, False, False),
    ("100k", "/100k", 16, False, False),
    ("tls", "/1k", 16, True, False),
    ("close", "/", 16, False, True),
]


def start_server(folder, cert):
    """An NGINX that responds itself, in clear text and over TLS."""
    (folder / "100k").write_bytes(b"x" * 102400)
    http, https = gw.free_port(), gw.free_port()
    body = f"""
  open_file_cache max=10 inactive=1h; open_file_cache_valid 1h;
  ssl_certificate {cert[0]}; ssl_certificate_key {cert[1]};
  server {{
    listen 127.0.0.1:{http} backlog=16384;
    listen 127.0.0.1:{https} ssl backlog=16384;
    location = /1k {{ return 200 "{'x' * 1024}"; }}
    location = /100k {{ root {folder}; }}
    location / {{ return 200 "ok\\n"; }}
  }}
"""
    server = gw.nginx(folder, "server", body, gw.GATEWAY_CORE)
    for port in (http, https):
        server.wait_listening(port)
    server.http, server.https = http, https
    return server


def spent(args):
    """Runs a generator on its core; returns its output, and the CPU seconds of all its threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run([str(a) for a in args], capture_output=True, text=True, check=False,
                         preexec_fn=gw.on_core(gw.LOAD_CORE))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if run.returncode != 0:
        sys.exit(f"{args[0]} failed:\n{run.stdout}{run.stderr}")
    return run.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def with_wrk(url, connections, close, seconds):
    """CPU microseconds per response, responses per second, errors."""
    header = ["-H", "Connection: close"] if close else []
    out, cpu = spent(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *header, url])
    count = int(re.search(r"(\d+) requests in", out)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])
    bad = re.search(r"(Socket errors.*|Non-2xx.*)", out)
    return cpu / count * 1e6, rate, bad[1] if bad else ""


def with_own(url, connections, close, seconds):
    """The same for yumen's own generator."""
    header = ["-H", "Connection: close"] if close else []
    out, cpu = spent([BENCH, "load", "-t1", f"-c{connections}", f"-d{seconds}s", *header, "--json", "-", url])
    found = json.loads(out)
    wrong = {name: n for name, n in found["errors"].items() if name != "examples" and n}
    return cpu / found["responses"] * 1e6, found["responses"] / found["elapsed_ns"] * 1e9, str(wrong or "")


def compare(scenario, server, rounds, seconds):
    """One row of the table."""
    name, path, connections, tls, close = scenario
    scheme, port = ("https", server.https) if tls else ("http", server.http)
    url = f"{scheme}://127.0.0.1:{port}{path}"
    tools = {"wrk": with_wrk, "own": with_own}
    found = {tool: [] for tool in tools}
    for _ in range(rounds):
        for tool in random.sample(list(tools), len(tools)):
            found[tool].append(tools[tool](url, connections, close, seconds))
    ratio = median(own[0] / wrk[0] for own, wrk in zip(found["own"], found["wrk"]))
    cpu = {tool: median(run[0] for run in runs) for tool, runs in found.items()}
    rate = {tool: median(run[1] for run in runs) for tool, runs in found.items()}
    wrong = "; ".join(sorted({f"{tool}: {run[2]}" for tool, runs in found.items() for run in runs if run[2]}))
    say(f"| {name} | {cpu['wrk']:.2f} | {cpu['own']:.2f} | {ratio:.2f} | {rate['wrk']:.0f} | {rate['own']:.0f} "
        f"| {'ok' if ratio <= GOAL else 'MISS'}{' INVALID ' + wrong if wrong else ''} |")
    return {"scenario": name, "cpu_us": cpu, "ratio": ratio, "per_second": rate, "wrong": wrong}


def compare_http2(folder):
    """Checks that the upstream counts the same for both generators, and the requested number."""
    port = gw.free_port()
    upstream = gw.Process([BENCH, "upstream", "--listen", f"127.0.0.1:{port}"], folder / "upstream.log",
                          gw.GATEWAY_CORE)
    upstream.wait_listening(port)
    url, count, connections, streams = f"http://127.0.0.1:{port}/1k", 20_000, 4, 10

    def stats():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats") as answer:
            return json.load(answer)

    def counted(args):
        before = stats()
        out, cpu = spent(args)
        after = stats()
        # The status request for the counts made a connection too.
        return (after["requests"] - before["requests"], after["connections"] - before["connections"] - 1), out, cpu

    try:
        theirs, out, theirs_cpu = counted(["h2load", "-n", count, "-c", connections, "-m", streams, url])
        ours, text, ours_cpu = counted([BENCH, "load", "--http2", "-n", count, "-c", connections, "-m", streams,
                                        "--json", "-", url])
    finally:
        upstream.stop()
    succeeded = int(re.search(r"(\d+) succeeded", out)[1])
    own = json.loads(text)
    say(f"\nHTTP/2, {count} requests on {connections} connections of {streams} streams, requests and connections as the "
        f"upstream counted them:\nh2load {theirs}, own {ours}; succeeded {succeeded} and {own['responses']}; "
        f"CPU per response {theirs_cpu / count * 1e6:.2f} and {ours_cpu / count * 1e6:.2f} us")
    expected = (count, connections)
    if not (theirs == ours == expected and succeeded == own["responses"] == count):
        sys.exit(f"the counts differ; {expected} were expected")
    return {"h2load": theirs, "own": ours}


def say(text):
    """Prints unbuffered, also into a pipe."""
    print(text, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--scenarios", help="comma-separated; default: all")
    parser.add_argument("--json", help="keep everything in this file")
    options = parser.parse_args()
    wanted = options.scenarios.split(",") if options.scenarios else [name for name, *_ in SCENARIOS]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        server = start_server(folder, gw.make_certificate(folder))
        try:
            say("| scenario | wrk us | own us | ratio | wrk/s | own/s | goal |\n|---|---|---|---|---|---|---|")
            rows = [compare(scenario, server, options.rounds, options.seconds)
                    for scenario in SCENARIOS if scenario[0] in wanted]
        finally:
            server.stop()
        http2 = compare_http2(folder)
    if options.json:
        Path(options.json).write_text(json.dumps({"rows": rows, "http2": http2}, indent=2) + "\n")


if __name__ == "__main__":
    main()

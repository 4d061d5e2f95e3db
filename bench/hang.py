#!/usr/bin/env python3
"""Sinks and providers that accept connections and never answer, under 10 000 requests per second.

One gateway with one worker gets three loads at constant rates: requests that http-logger, tcp-logger and opentelemetry record,
requests that opa, forward-auth and openid-connect (introspection) ask a provider about, and requests of a route without plugins,
whose latency counts. First all servers answer; then the servers of sinks and providers are stopped by SIGSTOP, so that the kernel
accepts for them and nothing answers; at last they continue. Fails if memory grows on, if an entry is neither sent nor counted, if
no problem is reported, or if the latency of the route without plugins changes.
Usage: bench/hang.py [--seconds 600] [--before 30] [--rate 10000] [--json FILE]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import gateways as gw

LAB = Path(os.environ.get("YUMEN_BENCH", gw.ROOT / "target/dist/yumen-bench"))
# Shares of the rate.
SHARES = {"logged": 0.6, "guarded": 0.3, "plain": 0.1}
CONNECTIONS = {"logged": 64, "guarded": 512, "plain": 16}
GUARDED = ("/opa", "/forward-auth", "/introspection")
# The queues hold at most 8192, 8192 and 2048 entries, some 20 MiB; the rest is for requests that wait.
GROWTH_MAX_MIB, LATE_GROWTH_MAX_MIB = 96, 8
# Percentiles of the route without plugins, and the most that they may grow.
PERCENTILES, LATENCY_RATIO_MAX = (50.0, 99.0, 99.9), 1.1
TCP_SINK = """
import socket, sys, threading
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1024)
def drain(stream):
    while stream.recv(1 << 20):
        pass
while True:
    threading.Thread(target=drain, args=(listener.accept()[0],), daemon=True).start()
"""


def start_provider(folder):
    """The provider, which is the receiver of logs and spans as well."""
    port = gw.free_port()
    issuer = f"http://127.0.0.1:{port}"
    discovery = json.dumps({"issuer": issuer, "introspection_endpoint": f"{issuer}/introspect"})
    body = f"""
  client_max_body_size 64m;
  server {{
    listen 127.0.0.1:{port} backlog=16384;
    location = /v1/data/allow {{ return 200 '{{"result": {{"allow": true}}}}'; }}
    location = /introspect {{ return 200 '{{"active": true, "sub": "user"}}'; }}
    location = /.well-known/openid-configuration {{ return 200 '{discovery}'; }}
    location / {{ return 200; }}
  }}
"""
    provider = gw.nginx(folder, "provider", body, gw.LOAD_CORE)
    provider.wait_listening(port)
    provider.port = port
    return provider


def start_tcp_sink(folder):
    port = gw.free_port()
    sink = gw.Process([sys.executable, "-c", TCP_SINK, port], folder / "tcp.log", gw.LOAD_CORE)
    sink.wait_listening(port)
    sink.port = port
    return sink


def routes(upstream, provider, tcp_sink):
    url = f"http://127.0.0.1:{provider.port}"
    plugins = {
        "/plain": {},
        "/logged": {"http-logger": {"uri": f"{url}/log"}, "tcp-logger": {"host": "127.0.0.1", "port": tcp_sink.port},
                    "opentelemetry": {"sampler": {"name": "always_on"}}},
        "/opa": {"opa": {"host": url, "policy": "allow"}},
        "/forward-auth": {"forward-auth": {"uri": f"{url}/auth"}},
        "/introspection": {"openid-connect": {
            "client_id": "bench", "client_secret": "secret", "bearer_only": True,
            "discovery": f"{url}/.well-known/openid-configuration", "introspection_endpoint": f"{url}/introspect"}},
    }
    lines = ["upstreams:", "  - " + json.dumps({"id": "up", "nodes": {f"127.0.0.1:{upstream.http}": 1}}), "routes:"]
    lines += ("  - " + json.dumps({"id": path[1:], "uri": path, "upstream_id": "up", "plugins": used})
              for path, used in plugins.items())
    collector = {"id": "opentelemetry", "collector": {"address": f"127.0.0.1:{provider.port}"}}
    lines += ["plugin_metadata:", "  - " + json.dumps(collector)]
    return "\n".join(lines) + "\n#END\n"


class Loads:
    """All loads of one phase, at the same time."""

    def __init__(self, gateway, rate, seconds):
        self.running = {}
        for name, share in SHARES.items():
            paths = GUARDED if name == "guarded" else (f"/{name}",)
            args = [LAB, "load", *(gateway.url(path=path) for path in paths), "-c", CONNECTIONS[name], "-d", f"{seconds}s",
                    "-R", round(rate * share), "-H", "Authorization: Bearer any", "--good-statuses", "100-599", "--timeout", "30s",
                    "--json", "-", "-q"]
            self.running[name] = subprocess.Popen([str(arg) for arg in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                                  text=True, preexec_fn=gw.on_core(gw.LOAD_CORE))

    def results(self):
        """The result of each load, by its name."""
        found = {}
        # Read at once: a full pipe would hold a load up.
        readers = {name: threading.Thread(target=lambda name=name, load=load: found.update({name: load.communicate()}))
                   for name, load in self.running.items()}
        for reader in readers.values():
            reader.start()
        for reader in readers.values():
            reader.join()
        for name, load in self.running.items():
            if load.returncode:
                raise RuntimeError(f"load {name}: {found[name][1][-500:]}")
        return {name: json.loads(out) for name, (out, _) in found.items()}

    def stop(self):
        for load in self.running.values():
            if load.poll() is None:
                load.kill()


class Memory:
    """Samples of the resident memory of a gateway in MiB."""

    def __init__(self, gateway):
        self.gateway, self.samples, self.ended = gateway, [], threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def sample(self):
        begun = time.monotonic()
        while not self.ended.wait(1):
            self.samples.append((time.monotonic() - begun, self.gateway.rss_kib() / 1024))

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.samples


def latency_ms(result):
    """Percentiles since the intended send time, in milliseconds."""
    points = {round(entry["percentile"], 4): entry["ns"] / 1e6 for entry in result["latency_corrected"]["percentiles"]}
    return {at: points[at] for at in PERCENTILES if at in points}


def counts(gateway):
    """Entries by plugin: sent, dropped, waiting."""
    found = {}
    for plugin in ("http-logger", "tcp-logger", "opentelemetry"):
        label = f'plugin="{plugin}"'
        sent = gw.metric(gateway, "yumen_sink_entries_total", f'{label},result="sent"')
        waiting = gw.metric(gateway, "yumen_sink_waiting_entries", label)
        found[plugin] = {"sent": sent, "waiting": waiting,
                         "dropped": gw.metric(gateway, "yumen_sink_entries_total", label) - sent}
    return found


def problems(gateway):
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.status}/yumen/v1/problems", timeout=10) as reply:
        return json.load(reply)


def statuses(result):
    return " ".join(f"{status}:{count}" for status, count in sorted(result["statuses"].items()))


def phase(name, gateway, rate, seconds):
    memory = Memory(gateway)
    loads = Loads(gateway, rate, seconds)
    try:
        results = loads.results()
    finally:
        loads.stop()
        samples = memory.stop()
    # Workers keep the last entries for a moment.
    time.sleep(0.3)
    plain = latency_ms(results["plain"])
    shown = "  ".join(f"p{at:g} {ms:.2f} ms" for at, ms in plain.items())
    total = sum(result["responses"] for result in results.values())
    print(f"{name}: {total / seconds:.0f} responses/s; without plugins: {shown}; "
          f"memory {samples[0][1]:.1f} to {samples[-1][1]:.1f} MiB, most {max(mib for _, mib in samples):.1f}")
    for load, result in results.items():
        errors = {kind: count for kind, count in result["errors"].items() if kind != "examples" and count}
        print(f"  {load:<8} {result['responses']:>9} responses, statuses {statuses(result)}, {errors or 'no failures'}")
    for plugin, found in counts(gateway).items():
        print("  " + f"{plugin:<14}" + "  ".join(f"{what} {count:.0f}" for what, count in found.items()))
    sys.stdout.flush()
    return {"plain_ms": plain, "memory_mib": samples, "counts": counts(gateway),
            "responses": {load: result["responses"] for load, result in results.items()}}


def verdicts(before, hang, told, logged):
    """Pairs of a check and its result."""
    first, halfway = before["memory_mib"][-1][1], hang["memory_mib"][len(hang["memory_mib"]) // 2][1]
    most, last = max(mib for _, mib in hang["memory_mib"]), max(mib for _, mib in hang["memory_mib"][-10:])
    yield f"memory grew by {most - first:.1f} MiB (at most {GROWTH_MAX_MIB})", most - first <= GROWTH_MAX_MIB
    late = last - halfway
    yield f"memory grew by {late:.1f} MiB in the second half (at most {LATE_GROWTH_MAX_MIB})", late <= LATE_GROWTH_MAX_MIB
    for at, ms in hang["plain_ms"].items():
        ratio = ms / before["plain_ms"][at]
        yield f"p{at:g} of the route without plugins: {ratio:.2f} of that before (at most {LATENCY_RATIO_MAX})", ratio <= LATENCY_RATIO_MAX
    for plugin, found in hang["counts"].items():
        counted = sum(found.values())
        # Requests that a phase cuts off have entries and no response.
        is_whole = abs(counted - logged) <= 2 * CONNECTIONS["logged"]
        yield f"{plugin}: {counted:.0f} entries counted of {logged} responses, {found['dropped']:.0f} dropped", is_whole
        # The kernel of a server that does not read takes whole batches over TCP, which has no other answer.
        if plugin == "tcp-logger" and not found["dropped"]:
            continue
        is_told = any(problem["object"] == f"plugins/{plugin}" for problem in told)
        yield f"{plugin}: its drops are a problem", is_told
    for plugin in ("opa", "forward-auth", "openid-connect"):
        yield f"{plugin}: its silent service is a problem", any(problem["object"] == f"plugins/{plugin}" for problem in told)


def run(options, folder):
    started, held = [], []
    try:
        for start in (gw.start_upstream, start_provider, start_tcp_sink):
            started.append(start(folder))
        upstream, provider, tcp_sink = started
        held += [*provider.pids(), *tcp_sink.pids()]
        file = folder / "routes.yaml"
        file.write_text(routes(upstream, provider, tcp_sink))
        gateway = gw.run_yumen(folder / "log", "--file", file, "--data-dir", folder / "data")
        started.append(gateway)
        if gw.answers(gateway.url(path="/introspection"), 30, headers={"Authorization": "Bearer any"}) is None:
            raise RuntimeError("the gateway does not answer")
        phase("warm-up", gateway, options.rate, 5)
        before = phase("answering", gateway, options.rate, options.before)
        begun = counts(gateway)
        for pid in held:
            os.kill(pid, signal.SIGSTOP)
        hang = phase("hanging", gateway, options.rate, options.seconds)
        told = problems(gateway)
        for problem in told:
            print(f"  {problem['level']} {problem['object']}: {problem['message']}")
        for plugin, found in hang["counts"].items():
            # Entries of the phases before.
            found["sent"] -= begun[plugin]["sent"]
            found["dropped"] -= begun[plugin]["dropped"]
            found["waiting"] -= begun[plugin]["waiting"]
        for pid in held:
            os.kill(pid, signal.SIGCONT)
        after = phase("answering again", gateway, options.rate, options.before)
        checks = list(verdicts(before, hang, told, hang["responses"]["logged"]))
        for plugin, found in after["counts"].items():
            checks.append((f"{plugin}: entries are sent again", found["sent"] > begun[plugin]["sent"] + hang["counts"][plugin]["sent"]))
        return {"before": before, "hang": hang, "after": after, "problems": told, "checks": checks}
    finally:
        for pid in held:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                pass
        for program in reversed(started):
            program.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600, help="time without an answer")
    parser.add_argument("--before", type=int, default=30, help="time with answers, before and after")
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    # Exits through the finally blocks, which stop the started programs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="yumen-hang-") as folder:
        os.chmod(folder, 0o755)
        found = run(options, Path(folder))
    for text, holds in found["checks"]:
        print(f"{'ok' if holds else 'MISS':<5} {text}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if all(holds for _, holds in found["checks"]) else 1)


if __name__ == "__main__":
    main()

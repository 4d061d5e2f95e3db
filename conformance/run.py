#!/usr/bin/env python3
"""Conformance to protocols, with independent programs: h2spec, aioquic, wsproto, and the interop clients and servers of gRPC
and gRPC-Web.

Every failing case must be listed in known_failures.txt with its reason; a listed case that passes is a failure too.
scripts/deps.sh conformance builds the programs. Usage: conformance/run.py [SUITE]...
"""

import http.server
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = ROOT / "target/tools"
YUMEN = Path(os.environ.get("BINARY", ROOT / "target/release/yumen"))
TOOLS = ("h2spec", "grpc-interop-client", "grpc-interop-server", "python/version",
         "grpc-web/node_modules/grpc-web/package.json")
PYTHON = BIN / "python/bin/python"
# The interop cases that need no account.
GRPC_CASES = """empty_unary large_unary client_streaming server_streaming ping_pong empty_stream custom_metadata
status_code_and_message special_status_message unimplemented_method unimplemented_service cancel_after_begin
cancel_after_first_response timeout_on_sleeping_server""".split()


class Hello(http.server.BaseHTTPRequestHandler):
    """An upstream that reads requests and responds with a greeting."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = b"hello, hello, hello\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        length = self.headers.get("Content-Length")
        if length:
            self.rfile.read(int(length))
        elif self.headers.get("Transfer-Encoding"):
            while (size := int(self.rfile.readline().split(b";")[0], 16)) > 0:
                self.rfile.read(size + 2)
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
        self.do_GET()

    do_HEAD = do_OPTIONS = do_GET

    def log_message(self, *_):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    """A server for suites with aborted and simultaneous connections."""

    request_queue_size = 256

    def handle_error(self, *_):
        pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port, child, seconds=60):
    """Waits until the port accepts."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    sys.exit(f"conformance: {child.args[0]} does not listen on {port}")


class World:
    """The gateway, its upstreams, and a certificate for both."""

    def __init__(self, folder):
        self.folder, self.children = folder, []
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost",
             "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", self.key, "-out", self.cert],
            check=True, capture_output=True)
        hello = Quiet(("127.0.0.1", 0), Hello)
        hello.daemon_threads = True
        threading.Thread(target=hello.serve_forever, daemon=True).start()
        plain = self.interop_server()
        tls = self.interop_server(f"--tls_cert_file={self.cert}", f"--tls_key_file={self.key}")
        self.ws, self.wss = free_port(), free_port()
        self.start(self.ws, [PYTHON, HERE / "websocket.py", "serve", self.ws, self.wss, self.cert, self.key])
        self.http, self.https = free_port(), free_port()
        self.start_gateway(hello.server_port, plain, tls)

    def start(self, port, args):
        log = open(self.folder / f"{port}.log", "wb")
        child = subprocess.Popen([str(arg) for arg in args], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.children.append(child)
        listens(port, child)
        return port

    def interop_server(self, *tls):
        port = free_port()
        return self.start(port, [BIN / "grpc-interop-server", f"--port={port}",
                                 f"--use_tls={'true' if tls else 'false'}", *tls])

    def start_gateway(self, hello, plain, tls):
        routes = self.folder / "routes.yaml"
        pem = lambda path: "".join(f"      {line}\n" for line in path.read_text().splitlines())
        routes.write_text(f"""routes:
  - {{ id: hello, uri: /*, upstream: {{ nodes: {{ "127.0.0.1:{hello}": 1 }} }} }}
  - {{ id: grpc, uri: /grpc.testing.*, vars: [[scheme, "==", http]],
      upstream: {{ scheme: grpc, nodes: {{ "127.0.0.1:{plain}": 1 }} }} }}
  - {{ id: grpc-web, uri: /web/*, plugins: {{ grpc-web: {{}} }},
      upstream: {{ scheme: grpc, nodes: {{ "127.0.0.1:{plain}": 1 }} }} }}
  - {{ id: grpcs, uri: /grpc.testing.*, vars: [[scheme, "==", https]],
      upstream: {{ scheme: grpcs, nodes: {{ "127.0.0.1:{tls}": 1 }} }} }}
  - {{ id: ws, uri: /ws/*, enable_websocket: true, upstream: {{ nodes: {{ "127.0.0.1:{self.ws}": 1 }} }} }}
  - {{ id: wss, uri: /wss/*, enable_websocket: true,
      upstream: {{ scheme: https, nodes: {{ "127.0.0.1:{self.wss}": 1 }} }} }}
ssls:
  - id: localhost
    snis: [localhost]
    cert: |
{pem(self.cert)}    key: |
{pem(self.key)}#END
""")
        config = self.folder / "yumen.yaml"
        config.write_text(f"""listen:
  - {{ address: "127.0.0.1:{self.http}" }}
  - {{ address: "127.0.0.1:{self.https}", tls: true, http3: true }}
""")
        args = [YUMEN, "run", "--config", config, "--file", routes, "--data-dir", self.folder / "data", "--workers", "1",
                "--admin", f"127.0.0.1:{free_port()}", "--status", f"127.0.0.1:{free_port()}"]
        self.start(self.http, args)

    def stop(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def h2spec(world, port, *more):
    """Case -> failure; empty if it passed."""
    report = world.folder / f"h2spec-{port}.xml"
    args = [BIN / "h2spec", "-h", "127.0.0.1", "-p", port, "-S", "-o", 10, "-j", report, *more]
    run = subprocess.run([str(arg) for arg in args], capture_output=True, text=True, timeout=600)
    if not report.exists():
        sys.exit(f"conformance: h2spec made no report: {run.stdout[-500:]}{run.stderr[-500:]}")
    results = {}
    for suite in xml.parse(report).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{case.get('package')} {case.get('classname')}"
            broken = [child for child in case if child.tag in ("failure", "error")]
            results[name] = (broken[0].text or "failed").strip() if broken else ""
    return results


def grpc_interop(world, port, *more):
    results = {}
    for case in GRPC_CASES:
        args = [BIN / "grpc-interop-client", "--server_host=localhost", f"--server_port={port}",
                f"--test_case={case}", *more]
        try:
            run = subprocess.run([str(arg) for arg in args], capture_output=True, text=True, timeout=120)
            tail = (run.stderr or run.stdout).strip().splitlines()[-1:] or ["failed"]
            results[case] = "" if run.returncode == 0 else tail[0]
        except subprocess.TimeoutExpired:
            results[case] = "no end within 120 s"
    return results


def cases_of(*args):
    """Case -> failure, from the output of one of the programs in this folder."""
    run = subprocess.run([str(arg) for arg in args], capture_output=True, text=True, timeout=600)
    if run.returncode:
        sys.exit(f"conformance: {Path(args[1]).name}: {run.stderr[-500:]}")
    return dict(line.split("\t", 1) for line in run.stdout.splitlines())


def script(name, *args):
    return cases_of(PYTHON, HERE / name, *args)


def websocket(kind):
    return lambda world: script("websocket.py", "ask", kind, world.http, world.https, world.cert)


def grpc_web(world):
    return cases_of("node", HERE / "grpc_web.cjs", BIN / "grpc-web", f"http://127.0.0.1:{world.http}/web")


SUITES = {
    "h2spec-cleartext": lambda world: h2spec(world, world.http),
    "h2spec-tls": lambda world: h2spec(world, world.https, "-t", "-k"),
    "http3": lambda world: script("http3.py", world.https, world.cert),
    **{f"websocket-{kind}": websocket(kind) for kind in ("http1", "tls", "h2c", "h2", "h3")},
    "grpc-h2c": lambda world: grpc_interop(world, world.http, "--use_tls=false"),
    "grpc-tls": lambda world: grpc_interop(world, world.https, "--use_tls=true", "--use_test_ca=true",
                                          f"--ca_file={world.cert}"),
    "grpc-web": grpc_web,
}


def known_failures():
    """(suite, case) -> reason."""
    known = {}
    for line in (HERE / "known_failures.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            suite, case, reason = (part.strip() for part in line.split("|", 2))
            known[suite, case] = reason
    return known


def judge(suite, results, known):
    """Prints unexpected results; returns the numbers of passed and of unexpected cases."""
    wrong = 0
    for case, why in results.items():
        reason = known.pop((suite, case), None)
        if why and reason is None:
            print(f"FAILED {suite} | {case}: {why}")
        elif not why and reason is not None:
            print(f"PASSED {suite} | {case}, which known_failures.txt says fails: {reason}")
        wrong += bool(why) == (reason is None)
    if not results:
        print(f"FAILED {suite}: it ran no case")
    passed = sum(not why for why in results.values())
    print(f"{suite}: {passed} of {len(results)} cases pass")
    return passed, wrong + (not results)


def main():
    names = sys.argv[1:] or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        sys.exit(f"conformance: no suite {', '.join(unknown)}; there are {', '.join(SUITES)}")
    if missing := [tool for tool in TOOLS if not (BIN / tool).exists()]:
        text = f"conformance: {', '.join(missing)} not there: scripts/deps.sh conformance installs them"
        if os.environ.get("SKIP_IF_OFFLINE"):
            print(f"skipped: {text}")
            return 0
        sys.exit(text)
    known, totals = known_failures(), [0, 0]
    folder = Path(tempfile.mkdtemp(prefix="yumen-conformance-"))
    world = None
    try:
        world = World(folder)
        for name in names:
            counts = judge(name, SUITES[name](world), known)
            totals = [total + count for total, count in zip(totals, counts)]
    finally:
        if world:
            world.stop()
        shutil.rmtree(folder, ignore_errors=True)
    for suite, case in known:
        if suite in names:
            print(f"MISSING {suite} | {case}: known_failures.txt names it and it did not run")
            totals[1] += 1
    print(f"{totals[0]} passed, {totals[1]} failed")
    return 1 if totals[1] else 0


if __name__ == "__main__":
    sys.exit(main())

"""The stage of a counterpart: ports, processes, an upstream, gateways and the list of findings. No counterpart itself."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# Programs that `scripts/deps.sh counterparts` makes.
PROGRAMS = Path(os.environ.get("HOME", "/root")) / ".cache/yumen-counterparts"
ROOT = Path(__file__).resolve().parent.parent.parent


class Missing(Exception):
    """A server is not installed."""


class Failure(Exception):
    """An expectation was not met."""


def expect(condition, text: str):
    """Fails the case unless the condition holds."""
    if not condition:
        raise Failure(text)


def program(name: str, hint: str = "run scripts/deps.sh counterparts") -> str:
    """The path of a program: of the cache, or of the system."""
    own = PROGRAMS / name
    path = str(own) if own.exists() else shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if not path:
        raise Missing(f"{name} is not installed: {hint}")
    return path


def free_port(kind=socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, seconds: float, what):
    """The first true value of `condition`; fails after `seconds` with a text, or with the text that a function makes."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what() if callable(what) else what}: not within {seconds:.0f} s")
        time.sleep(0.05)


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
        return True
    return False


def fetch(url: str, body: bytes | None = None, fields: dict | None = None, seconds: float = 10) -> bytes:
    """The body of a response; fails for a status of 400 or more."""
    request = urllib.request.Request(url, data=body, headers=fields or {})
    with urllib.request.urlopen(request, timeout=seconds) as response:
        return response.read()


class Server:
    """A process that can be stopped, started again, and frozen."""

    def __init__(self, name: str, args: list, folder: Path, port: int | None, env: dict | None, seconds: float):
        self.name, self.args, self.port, self.seconds = name, [str(arg) for arg in args], port, seconds
        self.log = folder / f"{name}.log"
        self.env = {**os.environ, **(env or {})}
        self.folder, self.process, self.frozen = folder, None, False

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env,
                                            cwd=self.folder, start_new_session=True)
        if self.port:
            wait_for(lambda: self.died() or accepts(self.port), self.seconds, f"start of {self.name}")
        if self.died():
            tail = self.log.read_text(errors="replace")[-400:]
            raise Failure(f"{self.name} ended at its start: {tail}")

    def died(self) -> bool:
        return self.process.poll() is not None

    def send_signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def freeze(self):
        self.frozen = True
        self.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.frozen = False
        self.send_signal(signal.SIGCONT)

    def stop(self, number=signal.SIGTERM):
        if self.process is None:
            return
        if self.frozen:
            self.thaw()
        self.send_signal(number)
        if not self.is_gone(10):
            self.send_signal(signal.SIGKILL)
            self.is_gone(5)

    def is_gone(self, seconds: float) -> bool:
        """Whether the process and its children end; a server may be the child of a script."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.process.poll()
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False


class Upstream:
    """Answers every request with 200 and `ok`."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.socket.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    @staticmethod
    def serve(client):
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
        waiting = b""
        with contextlib.suppress(OSError), client:
            while data := client.recv(65536):
                waiting += data
                while b"\r\n\r\n" in waiting:
                    _, waiting = waiting.split(b"\r\n\r\n", 1)
                    client.sendall(answer)


class Gateway:
    """A node of Yumen."""

    def __init__(self, scene, resources: dict, node: dict | None = None, env: dict | None = None):
        self.port, self.status_port, self.admin_port = free_port(), free_port(), free_port()
        number = len(scene.servers)
        self.folder = scene.folder / f"gateway-{number}"
        self.folder.mkdir()
        self.routes, config = self.folder / "routes.yaml", self.folder / "yumen.yaml"
        self.write(resources)
        # JSON is YAML.
        config.write_text(json.dumps({"listen": [{"address": f"127.0.0.1:{self.port}"}], **(node or {})}))
        args = [scene.binary, "run", "--config", config, "--file", self.routes, "--data-dir", self.folder / "data",
                "--workers", "1", "--admin", f"127.0.0.1:{self.admin_port}", "--status", f"127.0.0.1:{self.status_port}"]
        self.server = scene.server(f"gateway-{number}", args, port=self.port, env=env)
        wait_for(self.is_ready, 20, "readiness of the gateway")

    def write(self, resources: dict):
        """Replaces the resources; the gateway follows by itself."""
        document = self.routes.with_suffix(".new")
        document.write_text(json.dumps(resources) + "\n#END\n")
        document.rename(self.routes)

    def is_ready(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(fetch(f"http://127.0.0.1:{self.status_port}/status/ready")) or True
        return False

    def get(self, target: str, fields: dict | None = None, method: str = "GET", body: bytes | None = None):
        """Status, fields (lower-case names) and body of a response. Redirects are not followed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, target, body=body, headers=fields or {})
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        finally:
            connection.close()

    def send(self, request: bytes) -> int:
        """Sends the bytes of a request with `Connection: close`; the status of the response."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as client:
            client.sendall(request)
            answer = b""
            while data := client.recv(65536):
                answer += data
        return int(answer.split(b" ", 2)[1])

    def metrics(self) -> list[tuple[str, dict, float]]:
        text = fetch(f"http://127.0.0.1:{self.status_port}/metrics").decode()
        rows = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
        return [(name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value)) for name, labels, value in rows]

    def metric(self, name: str, **labels) -> float:
        """The sum of the series with these labels."""
        return sum(value for found, own, value in self.metrics() if found == name and labels.items() <= own.items())

    def resident_mib(self) -> float:
        text = Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024

    def log(self) -> str:
        return self.server.log.read_text(errors="replace")


class Scene:
    """What a counterpart is given. Ends every process that it started."""

    def __init__(self, folder: Path, binary: Path, short: bool):
        self.folder, self.binary, self.short = folder, binary, short
        self.servers: list[Server] = []
        self.failures: list[str] = []
        self.passed = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in reversed(self.servers):
            server.stop()

    def server(self, name: str, args: list, port: int | None = None, env: dict | None = None, seconds: float = 60) -> Server:
        """Starts a process and waits until it accepts connections at the port."""
        server = Server(name, args, self.folder, port, env, seconds)
        self.servers.append(server)
        server.start()
        return server

    def gateway(self, resources: dict, node: dict | None = None, env: dict | None = None) -> Gateway:
        """Starts a gateway with resources in the standalone format and further settings of the node."""
        return Gateway(self, resources, node, env)

    def upstream(self) -> Upstream:
        return Upstream()

    def certificate(self, name: str = "localhost") -> tuple[Path, Path]:
        """A self-signed certificate for 127.0.0.1 and localhost, and its key."""
        cert, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", key, "-out", cert], check=True, capture_output=True)
        return cert, key

    @contextlib.contextmanager
    def case(self, sentence: str):
        """One case: a failed expectation or an error is a finding, and the next case runs."""
        begin = time.monotonic()
        try:
            yield
        except Missing:
            raise
        except Failure as failure:
            self.failures.append(f"{sentence}: {failure}")
        except Exception as error:  # noqa: BLE001
            with open(self.folder / "errors.log", "a") as log:
                traceback.print_exc(file=log)
            self.failures.append(f"{sentence}: {type(error).__name__}: {error}")
        else:
            self.passed += 1
            print(f"{time.monotonic() - begin:6.1f} s  ok      {sentence}", flush=True)
            return
        print(f"{time.monotonic() - begin:6.1f} s  FAILED  {self.failures[-1]}", flush=True)

    def note(self, text: str):
        """A figure for the reader; no verdict."""
        print(f"          {text}", flush=True)


class HttpStub(ThreadingHTTPServer):
    """A server whose `answer(method, path, fields, body)` returns status, fields and body. For callbacks of counterparts."""

    daemon_threads = True
    # Requests that waited for a server arrive at once when it thaws.
    request_queue_size = 512

    def __init__(self, answer):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, fields, out = answer(self.command, self.path, self.headers, body)
                self.send_response(status)
                for name, value in {**fields, "Content-Length": str(len(out))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(out)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = handle_any

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_port
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        # Clients that are ended or frozen are part of the cases.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

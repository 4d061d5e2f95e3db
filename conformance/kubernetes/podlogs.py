"""The log endpoint of the stand-in node, which the API server asks for `kubectl logs`."""

import http.server
import re
import ssl
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

LOG_PATH = re.compile(r"/containerLogs/([^/]+)/([^/]+)/([^/]+)")


class LogServer:
    """An HTTPS server on loopback; `folder` has a folder per pod, `{namespace}_{name}`, with a log per container."""

    def __init__(self, folder: Path):
        class Handler(LogHandler):
            pods = folder

        certificate, key = folder / "node.crt", folder / "node.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=node",
                        "-keyout", key, "-out", certificate], check=True, capture_output=True)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # Handshakes in the threads of connections, so that a silent client stops nobody else.
        self.server.socket = tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class LogHandler(http.server.BaseHTTPRequestHandler):
    """Lines of a log, selected by `sinceTime`, `sinceSeconds` and `tailLines`."""

    pods: Path

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        matched = LOG_PATH.fullmatch(url.path)
        log = self.pods / f"{matched[1]}_{matched[2]}" / f"{matched[3]}.log" if matched else None
        if not log or not log.exists():
            self.send_error(404)
            return
        options = {name: values[-1] for name, values in parse_qs(url.query).items()}
        lines = select(log.read_bytes().splitlines(keepends=True), options)
        body = b"".join(lines if options.get("timestamps") == "true" else (line.partition(b" ")[2] for line in lines))
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def select(lines: list[bytes], options: dict[str, str]) -> list[bytes]:
    """The lines that the options ask for. Each begins with its time, in a form whose order is that of the text."""
    since = None
    if "sinceTime" in options:
        since = datetime.fromisoformat(options["sinceTime"]).astimezone(UTC)
    elif "sinceSeconds" in options:
        since = datetime.fromtimestamp(time.time(), UTC) - timedelta(seconds=float(options["sinceSeconds"]))
    if since:
        earliest = since.strftime("%Y-%m-%dT%H:%M:%S").encode()
        lines = [line for line in lines if line[:len(earliest)] >= earliest]
    if "tailLines" in options:
        count = int(options["tailLines"])
        lines = lines[-count:] if count else []
    return lines

#!/usr/bin/env python3
"""A relay before the API server that adds changes of Ingresses to watches: more per second than the API server itself could take beside a
load on the same machine.

Everything passes through unchanged. While changes are on, each watch of Ingresses also gets MODIFIED events, in turn over all Ingresses of
the round, with another path each time. The gateway cannot distinguish them from changes that the API server made.
Usage: watch_relay.py KUBECONFIG; it prints its port, and reads commands from standard input: `begin FILE RATE` and `finish`.
"""

import http.client
import json
import os
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from api import ApiAccess, KubeObject

# Events are written in batches of this time.
TICK_SECONDS = 0.01
HOP_FIELDS = {"connection", "transfer-encoding", "content-length", "accept-encoding", "host", "keep-alive"}
# Distance of the versions of added events from those that the API server assigns during a round.
VERSION_GAP = 1_000_000


class ChangeSource:
    """The events of the changes, the same for every watch."""

    def __init__(self) -> None:
        self.watches: list["WatchOutput"] = []
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None
        self.sent, self.seconds, self.last = 0, 0.0, {}

    def begin(self, items: list[KubeObject], rate: float) -> None:
        self.thread = threading.Thread(target=self._send, args=(items, rate), daemon=True)
        self.thread.start()

    def _send(self, items: list[KubeObject], rate: float) -> None:
        version = max(int(item["metadata"]["resourceVersion"]) for item in items) + VERSION_GAP
        begin = time.monotonic()
        while not self.stopped.wait(TICK_SECONDS):
            due = int((time.monotonic() - begin) * rate) - self.sent
            lines = []
            for _ in range(due):
                self.sent += 1
                lines.append(self._event(items[self.sent % len(items)], version + self.sent, self.sent // len(items)))
            if lines:
                with self.lock:
                    for watch in self.watches:
                        watch.write(b"".join(lines))
        self.seconds = time.monotonic() - begin

    def _event(self, item: KubeObject, version: int, turn: int) -> bytes:
        rule = item["spec"]["rules"][0]
        rule["http"]["paths"][0]["path"] = path = f"/turn-{turn}"
        item["metadata"]["resourceVersion"] = str(version)
        item["metadata"]["generation"] = turn + 2
        self.last = {"host": rule["host"], "path": path}
        return json.dumps({"type": "MODIFIED", "object": {"kind": "Ingress", "apiVersion": "networking.k8s.io/v1", **item}},
                          separators=(",", ":")).encode() + b"\n"

    def finish(self) -> KubeObject:
        self.stopped.set()
        if self.thread:
            self.thread.join()
        return {**self.last, "sent": self.sent, "per_second": self.sent / self.seconds if self.seconds else 0.0}


class WatchOutput:
    """The response of one watch: two writers, chunks whole."""

    def __init__(self, stream) -> None:
        self.stream, self.lock = stream, threading.Lock()

    def write(self, data: bytes) -> None:
        try:
            with self.lock:
                self.stream.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.stream.flush()
        except OSError:
            pass


class RelayHandler(BaseHTTPRequestHandler):
    """A connection of the gateway. Requests are passed on with the gateway's own token."""

    protocol_version = "HTTP/1.1"
    access: ApiAccess
    tls: ssl.SSLContext
    source: ChangeSource

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def log_message(self, *_args: object) -> None:
        pass

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        fields = {name: value for name, value in self.headers.items() if name.lower() not in HOP_FIELDS}
        if "protobuf" in fields.get("Accept", ""):
            # The events of this relay are JSON.
            fields["Accept"] = "application/json"
        connection = http.client.HTTPSConnection(self.access.host, self.access.port, context=self.tls, timeout=900)
        try:
            connection.request(self.command, self.path, body, fields)
            reply = connection.getresponse()
            if "watch=" in self.path and reply.status == 200:
                self._watch(reply)
            else:
                self._whole(reply)
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = relay

    def _whole(self, reply: http.client.HTTPResponse) -> None:
        text = reply.read()
        self._head(reply, ("Content-Length", str(len(text))))
        self.wfile.write(text)

    def _watch(self, reply: http.client.HTTPResponse) -> None:
        self._head(reply, ("Transfer-Encoding", "chunked"))
        output = WatchOutput(self.wfile)
        is_changed = "/ingresses?" in self.path
        if is_changed:
            with self.source.lock:
                self.source.watches.append(output)
        try:
            while line := reply.readline():
                output.write(line)
        finally:
            if is_changed:
                with self.source.lock:
                    self.source.watches.remove(output)
            self.close_connection = True

    def _head(self, reply: http.client.HTTPResponse, length: tuple[str, str]) -> None:
        self.send_response_only(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in HOP_FIELDS:
                self.send_header(name, value)
        self.send_header(*length)
        self.end_headers()


class RelayServer(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, request_queue_size = True, True, 128


class RelayProcess:
    """The relay as a child of the run."""

    def __init__(self, kubeconfig: Path, folder: Path, cores: list[int]):
        args = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, __file__, kubeconfig]
        path = os.pathsep.join(sys.path)
        self.folder = folder
        self.child = subprocess.Popen([str(arg) for arg in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      stderr=open(folder / "relay.log", "w"), env={**os.environ, "PYTHONPATH": path})
        assert self.child.stdout
        port = int(self.child.stdout.readline())
        document = json.loads(kubeconfig.read_text())
        document["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(document))

    def begin(self, items: list[KubeObject], rate: float) -> None:
        file = self.folder / "ingresses.json"
        file.write_text(json.dumps(items))
        self._say(f"begin {file} {rate}")

    def finish(self) -> KubeObject:
        self._say("finish")
        assert self.child.stdout
        return json.loads(self.child.stdout.readline())

    def _say(self, text: str) -> None:
        assert self.child.stdin
        self.child.stdin.write(text + "\n")
        self.child.stdin.flush()

    def stop(self) -> None:
        self.child.terminate()
        self.child.wait()


def main() -> None:
    RelayHandler.access = ApiAccess.read(Path(sys.argv[1]))
    RelayHandler.tls = ssl.create_default_context(cafile=str(RelayHandler.access.authority))
    RelayHandler.source = source = ChangeSource()
    server = RelayServer(("127.0.0.1", 0), RelayHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "begin":
            source.begin(json.loads(Path(words[0]).read_text()), float(words[1]))
        else:
            print(json.dumps(source.finish()), flush=True)


if __name__ == "__main__":
    main()

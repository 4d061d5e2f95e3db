"""Clients that send requests at a constant rate and count what fails."""

import collections
import http.client
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

# Requests per connection; then the client opens another.
REQUESTS_PER_CONNECTION = 50
TIMEOUT_SECONDS = 10
# A connection that the server closed while it was idle shows one of these before any byte of a response. RFC 9110 section 9.2.2
# lets clients repeat the request then, and all of them do.
CLOSED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)


@dataclass(frozen=True)
class LoadTarget:
    """An address, and the request that is sent to it."""

    address: str
    port: int
    host: str
    path: str = "/"
    # None: HTTP without TLS.
    authority: str | None = None
    status: int = 200


class LoadConnection:
    """One connection at a time. `request` returns the status and the body."""

    def __init__(self, target: LoadTarget):
        self.target = target
        self.tls = ssl.create_default_context(cafile=target.authority) if target.authority else None
        self.connection: http.client.HTTPConnection | None = None
        self.used = self.repeated = 0

    def request(self, path: str | None = None) -> tuple[int, bytes]:
        if self.used >= REQUESTS_PER_CONNECTION:
            self.close()
        try:
            return self._send(path)
        except CLOSED:
            was_used = self.used > 0
            self.close()
            if not was_used:
                raise
            self.repeated += 1
            return self._send(path)
        except BaseException:
            self.close()
            raise

    def _send(self, path: str | None) -> tuple[int, bytes]:
        if self.connection is None:
            self.connection = self._open()
        self.connection.request("GET", path or self.target.path, headers={"Host": self.target.host})
        reply = self.connection.getresponse()
        body = reply.read()
        self.used += 1
        if reply.will_close:
            self.close()
        return reply.status, body

    def _open(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.target.address, self.target.port, timeout=TIMEOUT_SECONDS)
        connection.connect()
        assert connection.sock
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            connection.sock = self.tls.wrap_socket(connection.sock, server_hostname=self.target.host)
        return connection

    def close(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection, self.used = None, 0


@dataclass
class LoadResult:
    """Counts of all clients."""

    statuses: collections.Counter[int] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    repeated: int = 0
    slowest_ms: float = 0.0

    def __str__(self) -> str:
        text = f"{sum(self.statuses.values())} requests, slowest {self.slowest_ms:.0f} ms"
        return text + (f", {self.repeated} repeated after the end of an idle connection" if self.repeated else "")


class SteadyLoad:
    """A `with` block under load. Each client keeps to its share of the rate, whatever the responses take."""

    def __init__(self, target: LoadTarget, rate: float = 200, clients: int = 10):
        self.target, self.pause = target, clients / rate
        self.result = LoadResult()
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self._send, args=(number / rate,)) for number in range(clients)]

    def __enter__(self) -> "SteadyLoad":
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def _send(self, offset: float) -> None:
        connection = LoadConnection(self.target)
        due = time.monotonic() + offset
        while not self.stopped.wait(max(0.0, due - time.monotonic())):
            begin, due = time.monotonic(), due + self.pause
            try:
                status, body = connection.request()
                failure = "" if status == self.target.status else f"{status} {body[:120]!r}"
            except (OSError, http.client.HTTPException) as error:
                status, failure = 0, repr(error)
            with self.lock:
                self.result.statuses[status] += 1
                self.result.slowest_ms = max(self.result.slowest_ms, (time.monotonic() - begin) * 1000)
                if failure:
                    self.result.failures.append(f"{time.strftime('%H:%M:%S')} {failure}")
        connection.close()
        with self.lock:
            self.result.repeated += connection.repeated


def responds(target: LoadTarget, path: str | None = None) -> bool:
    """Whether a request on a new connection gets the status of the target."""
    connection = LoadConnection(target)
    try:
        return connection.request(path)[0] == target.status
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

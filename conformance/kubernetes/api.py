"""A client of the Kubernetes API: requests, and lists followed by watches. It knows nothing of the objects themselves."""

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
WATCH_SECONDS = 300
# Pause before a failed list or watch is repeated.
RETRY_SECONDS = 0.5

KubeObject = dict[str, Any]
# Called with ADDED, MODIFIED or DELETED and an object, or with REPLACED and the complete list.
WatchCallback = Callable[[str, Any], None]


class ApiError(Exception):
    """A response with a status of 400 or more."""

    def __init__(self, request: str, status: int, reply: str):
        super().__init__(f"{request}: {status} {reply[:400]}")
        self.status = status


@dataclass(frozen=True)
class ApiAccess:
    """Address and credentials of an API server, as `Cluster` writes them into a kubeconfig."""

    host: str
    port: int
    token: str
    authority: Path

    @staticmethod
    def read(kubeconfig: Path) -> "ApiAccess":
        """Reads a kubeconfig that is JSON with one cluster and one user."""
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        server = urlsplit(cluster["server"])
        return ApiAccess(server.hostname or "", server.port or 443, document["users"][0]["user"]["token"],
                         Path(cluster["certificate-authority"]))


class ApiClient:
    """Requests with one token; every request has its own connection, so threads can share a client."""

    def __init__(self, access: ApiAccess):
        self.access = access
        self.tls = ssl.create_default_context(cafile=str(access.authority))

    def get(self, path: str) -> KubeObject:
        return self.request("GET", path)

    def find(self, path: str) -> KubeObject | None:
        """The object, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: KubeObject) -> KubeObject:
        return self.request("POST", path, body)

    def patch(self, path: str, body: KubeObject, content_type: str = MERGE_PATCH) -> KubeObject:
        return self.request("PATCH", path, body, content_type)

    def delete(self, path: str) -> None:
        """Deletes an object; an object that does not exist is no error."""
        try:
            self.request("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def request(self, method: str, path: str, body: KubeObject | None = None,
                content_type: str = "application/json") -> Any:
        """The decoded reply."""
        connection = self._open(30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self._fields(content_type))
            reply = connection.getresponse()
            text = reply.read().decode()
        finally:
            connection.close()
        if reply.status >= 400:
            raise ApiError(f"{method} {path}", reply.status, text)
        return json.loads(text) if text[:1] == "{" else text

    def watch(self, path: str, callback: WatchCallback, stop: threading.Event) -> None:
        """Lists, then watches, until `stop` is set; a list again after every failure."""
        while not stop.is_set():
            try:
                listed = self.get(path)
                callback("REPLACED", listed.get("items") or [])
                self._follow(path, listed["metadata"]["resourceVersion"], callback, stop)
            except (OSError, http.client.HTTPException, ValueError, ApiError):
                stop.wait(RETRY_SECONDS)

    def _follow(self, path: str, version: str, callback: WatchCallback, stop: threading.Event) -> None:
        connection = self._open(WATCH_SECONDS + 30)
        query = f"watch=1&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
        try:
            connection.request("GET", f"{path}?{query}", headers=self._fields("application/json"))
            reply = connection.getresponse()
            while not stop.is_set() and (line := reply.readline()):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                callback(event["type"], event["object"])
        finally:
            connection.close()

    def wait_ready(self, alive: Callable[[], bool], seconds: float) -> None:
        """Waits until the API server is ready, as long as `alive` holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and alive():
            try:
                self.get("/readyz")
                return
            except (OSError, ApiError, http.client.HTTPException):
                time.sleep(0.1)
        raise TimeoutError(f"the API server on port {self.access.port} is not ready within {seconds:.0f} s")

    def _open(self, timeout: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.access.host, self.access.port, context=self.tls, timeout=timeout)

    def _fields(self, content_type: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.access.token}", "Content-Type": content_type}

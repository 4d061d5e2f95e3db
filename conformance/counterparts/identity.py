"""Parts of the counterparts for identity and secrets: a steady load, a browser without scripts, certificates. No counterpart itself."""

import base64
import collections
import html
import http.client
import json
import re
import subprocess
import threading
import time
import urllib.parse
from pathlib import Path

from scene import HttpStub, expect


def basic(name: str, password: str, scheme: str = "Basic") -> dict:
    """The field with a name and a password."""
    return {"Authorization": f"{scheme} {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}


def echo() -> HttpStub:
    """An upstream that answers with the fields of the request, their names in lower case."""
    def answer(_method, path, fields, _body):
        seen = {name.lower(): value for name, value in fields.items()}
        return 200, {"Content-Type": "application/json"}, json.dumps({"path": path, "fields": seen}).encode()
    return HttpStub(answer)


def nodes(port: int) -> dict:
    """An upstream in the standalone format."""
    return {"type": "roundrobin", "nodes": {f"127.0.0.1:{port}": 1}}


def issued_certificate(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate for 127.0.0.1 and localhost, its key, and the authority that issued it."""
    ca, ca_key, cert, key = (folder / name for name in ("ca.pem", "ca.key", "leaf.pem", "leaf.key"))
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run([*make, "-subj", "/CN=authority", "-keyout", ca_key, "-out", ca], check=True, capture_output=True)
    subprocess.run([*make, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-addext", "basicConstraints=critical,CA:FALSE", "-CA", ca, "-CAkey", ca_key,
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key, ca


class Load:
    """Requests at a steady rate while a `with` block runs. A latency counts from the time at which its request was due."""

    def __init__(self, gateway, target: str, fields: dict | None = None, rate: int = 100, threads: int = 4):
        self.gateway, self.target, self.fields = gateway, target, fields or {}
        self.pause, self.statuses, self.latencies = threads / rate, collections.Counter(), []
        self.ended, self.lock = threading.Event(), threading.Lock()
        self.threads = [threading.Thread(target=self.send, args=(number / rate,), daemon=True) for number in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join(60)

    def send(self, offset: float):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=60)
        due = time.monotonic() + offset
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            try:
                connection.request("GET", self.target, headers=self.fields)
                response = connection.getresponse()
                response.read()
                status = response.status
            except OSError as error:
                connection.close()
                status = type(error).__name__
            with self.lock:
                self.statuses[status] += 1
                self.latencies.append(time.monotonic() - due)
            due += self.pause

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    def expect_only(self, *statuses):
        """Fails if there was another status, or no request."""
        expect(self.statuses and set(self.statuses) <= set(statuses), f"statuses {dict(self.statuses)}, expected {statuses}")


class Page:
    """A response, with the URL that gave it."""

    def __init__(self, url: str, status: int, fields, body: bytes):
        self.url, self.status, self.fields, self.body = url, status, fields, body

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def form(self) -> tuple[str, dict]:
        """The target and the values of the first form."""
        action = re.search(r'<form[^>]*action="([^"]*)"', self.text)
        expect(action, f"no form at {self.url}: {self.status} {self.text[:200]}")
        inputs = [dict(re.findall(r'(\w+)="([^"]*)"', tag)) for tag in re.findall(r"<input([^>]*)>", self.text)]
        values = {one["name"]: html.unescape(one.get("value", "")) for one in inputs if "name" in one}
        return urllib.parse.urljoin(self.url, html.unescape(action[1])), values


class Browser:
    """Follows redirects and keeps cookies by host and port. Cookies with `Secure` are sent over plain HTTP too."""

    def __init__(self):
        self.cookies: dict[str, dict[str, str]] = collections.defaultdict(dict)
        self.seen: list[str] = []

    def request(self, url: str, form: dict | None = None, follow: bool = True) -> Page:
        for _ in range(20):
            page = self.send(url, form)
            if not (follow and page.status in (301, 302, 303, 307) and page.fields["Location"]):
                return page
            url, form = urllib.parse.urljoin(url, page.fields["Location"]), None
        raise RuntimeError(f"redirect loop: {self.seen[-6:]}")

    def send(self, url: str, form: dict | None) -> Page:
        self.seen.append(url)
        parts = urllib.parse.urlsplit(url)
        jar = self.cookies[parts.netloc]
        fields = {"Accept": "text/html", "Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())}
        body = None
        if form is not None:
            fields["Content-Type"], body = "application/x-www-form-urlencoded", urllib.parse.urlencode(form)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET" if form is None else "POST", target, body=body, headers=fields)
        response = connection.getresponse()
        page = Page(url, response.status, response.msg, response.read())
        connection.close()
        for line in response.msg.get_all("Set-Cookie") or []:
            name, value = line.split(";")[0].split("=", 1)
            if not value or re.search(r"max-age=0\b", line, re.IGNORECASE):
                jar.pop(name, None)
            else:
                jar[name] = value
        return page

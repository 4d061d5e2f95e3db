"""Servers beside the upstream: an identity provider whose logins need no user, and a receiver of logs and spans.

Not measured: a gateway calls the provider before the load, and the receiver is that of single requests. Under full load
NGINX of `gateways.start_upstream` receives instead.
"""

import base64
import http.client
import json
import subprocess
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CLIENT = "bench"
ONE_DAY_S = 86_400


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Counterpart:
    """All servers on one port, in threads of this process."""

    def __init__(self, folder):
        self.key = folder / "provider.pem"
        run = ["openssl", "genrsa", "-out", self.key, "2048"]
        subprocess.run(run, check=True, capture_output=True)
        modulus = subprocess.run(["openssl", "rsa", "-in", self.key, "-noout", "-modulus"], check=True,
                                 capture_output=True, text=True).stdout.strip().split("=")[1]
        jwk = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "bench", "n": base64url(bytes.fromhex(modulus)),
               "e": "AQAB"}
        part = self

        class Handler(BaseHTTPRequestHandler):
            """One connection of a gateway."""
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def body(self):
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            def reply(self, document):
                text = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self):
                self.reply({"keys": [jwk]} if self.path == "/jwks" else part.discovery())

            def do_POST(self):
                self.body()
                self.reply(part.grant() if self.path == "/token" else {})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def issuer(self):
        return f"http://127.0.0.1:{self.port}"

    def discovery(self):
        issuer = self.issuer()
        return {"issuer": issuer, "jwks_uri": f"{issuer}/jwks", "token_endpoint": f"{issuer}/token",
                "authorization_endpoint": f"{issuer}/authorize"}

    def grant(self):
        """Tokens for any code."""
        return {"access_token": "a" * 40, "token_type": "Bearer", "expires_in": ONE_DAY_S, "id_token": self.token()}

    def token(self):
        """A token signed by RS256, with the claims that providers usually add."""
        now = int(time.time())
        claims = {"iss": self.issuer(), "sub": "5f2b9a0e-6e5c-4a52-9d0b-7f1f1f8f3d11", "aud": CLIENT, "iat": now,
                  "exp": now + ONE_DAY_S, "scope": "openid profile email", "preferred_username": "user",
                  "email": "user@example.com", "email_verified": True}
        head = {"alg": "RS256", "typ": "JWT", "kid": "bench"}
        text = ".".join(base64url(json.dumps(part).encode()) for part in (head, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.key], input=text.encode(), check=True,
                                   capture_output=True).stdout
        return f"{text}.{base64url(signature)}"


def openid_connect(flavour, counterpart):
    """Settings of the plugin for the flavours `jwt-jwks` and `oidc-session`."""
    settings = {"client_id": CLIENT, "discovery": f"{counterpart.issuer()}/.well-known/openid-configuration"}
    if flavour == "jwt-jwks":
        return {**settings, "bearer_only": True, "use_jwks": True}
    # Renewals of the cookie are rare in use, and would be frequent in a short run.
    session = {"secret": "a secret of the benchmark", "idling_timeout": ONE_DAY_S, "rolling_timeout": ONE_DAY_S}
    return {**settings, "client_secret": "secret", "session": session}


def fields(flavour, port, counterpart):
    """Fields of the requests of a flavour. Waits until the gateway has the documents of the provider."""
    if flavour == "jwt-jwks":
        field = f"Authorization: Bearer {counterpart.token()}"
        ask(port, "/", field, 200)
        return (field,)
    if flavour == "oidc-session":
        return (log_in(port),)
    return ()


def ask(port, path, field, status):
    """The response to a request, once it has this status."""
    name, _, value = field.partition(": ")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        client.request("GET", path, headers={name: value} if name else {})
        response = client.getresponse()
        text = response.read()
        client.close()
        if response.status == status:
            return response
        time.sleep(0.1)
    raise RuntimeError(f"{path}: status {response.status} instead of {status}: {text[:200]!r}")


def cookies(response):
    """The field with the cookies that a response sets."""
    set_cookies = response.headers.get_all("Set-Cookie") or []
    pairs = [one.split(";")[0] for one in set_cookies if "Max-Age=0" not in one]
    return "Cookie: " + "; ".join(pair for pair in pairs if not pair.endswith("="))


def log_in(port):
    """The cookies of a session."""
    redirect = ask(port, "/", "", 302)
    sent = urllib.parse.parse_qs(urllib.parse.urlsplit(redirect.headers["Location"]).query)
    back = urllib.parse.urlsplit(sent["redirect_uri"][0]).path
    answer = urllib.parse.urlencode({"code": "any", "state": sent["state"][0]})
    ended = ask(port, f"{back}?{answer}", cookies(redirect), 302)
    session = [one for one in cookies(ended).removeprefix("Cookie: ").split("; ") if "_login" not in one]
    field = "Cookie: " + "; ".join(session)
    ask(port, "/", field, 200)
    return field

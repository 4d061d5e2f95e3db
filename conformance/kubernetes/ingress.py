#!/usr/bin/env python3
"""Ingresses against a real API server: adoption beside ingress-nginx, TLS Secrets, challenges, events, default backend, ExternalName.

Yumen runs beside the API server; endpoints are servers of this script on the machine's address. Needs no root.
Usage: conformance/kubernetes/ingress.py [--binary FILE] [--folder FOLDER]
"""

import base64
import http.client
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from api import KubeObject
from cluster import free_ports
from fixture import check
from trial import INGRESSES, NAMESPACE, GatewayTrial, arguments, ingress

HOST = "shop.test"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
# The address that ingress-nginx wrote, and the one that Yumen publishes.
FORMER_ADDRESS, OWN_ADDRESS = "192.0.2.99", "192.0.2.7"
CHALLENGE_SECONDS = 3.0
# Time in which a controller that wrote statuses would have done so.
QUIET_SECONDS = 3.0


def machine_address() -> str:
    """An address of this machine that the API server admits in an EndpointSlice, which loopback is not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing.
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address


class NamedServer:
    """A server that answers with its name."""

    def __init__(self, name: str):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = name.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class IngressTrial(GatewayTrial):
    def start(self) -> None:
        self.status_port, self.http, self.https = free_ports(3)
        self.address = machine_address()
        super().start()
        self.add_class("nginx", "k8s.io/ingress-nginx")
        for name in ("cart", "solver", "fallback"):
            self.serve(name)
        self.outside = NamedServer("outside")
        self.add_service("outside", type="ExternalName", externalName=self.address, ports=[{"port": self.outside.port}])
        pair = {name: self.folder / name for name in ("tls.crt", "tls.key")}
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-keyout", pair["tls.key"], "-out", pair["tls.crt"], "-subj", f"/CN={HOST}",
                        "-addext", f"subjectAltName=DNS:{HOST}"], check=True, capture_output=True)
        self.pair = {name: base64.b64encode(path.read_bytes()).decode() for name, path in pair.items()}

    def serve(self, name: str) -> None:
        """A Service with one endpoint, which answers with its name."""
        port = NamedServer(name).port
        self.add_service(name, ports=[{"port": 80, "targetPort": port}])
        self.client.create(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", {
            "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "ports": [{"name": "", "port": port}],
            "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}]})

    def start_yumen(self, take_over: bool, *flags: str) -> None:
        """Starts Yumen, again if it runs."""
        flags = (f"--publish-status-address={OWN_ADDRESS}", f"--default-backend-service={NAMESPACE}/fallback", *flags)
        options = {"http_port": self.http, "https_port": self.https, "take_over": take_over, "flags": flags}
        self.run(f"127.0.0.1:{self.status_port}", {"ingress": options})

    def ask(self, path: str, host: str = HOST) -> tuple[int, str]:
        """Status and body of a request over http; status 0 without a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=5)
        try:
            connection.request("GET", path, headers={"Host": host})
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def certificate(self) -> bytes:
        """The certificate of a handshake for the host; empty without one."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            with socket.create_connection(("127.0.0.1", self.https), 5) as plain, context.wrap_socket(plain, server_hostname=HOST) as tls:
                return tls.getpeercert(binary_form=True) or b""
        except OSError:
            return b""

    def load_balancer(self, name: str) -> list[KubeObject]:
        found: list[KubeObject] = (self.client.get(f"{INGRESSES}/{name}").get("status") or {}).get("loadBalancer", {}).get("ingress") or []
        return found

    def events(self, name: str) -> str:
        """The messages of the events of an Ingress."""
        items = self.client.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return "\n".join(one.get("message") or "" for one in items if one["involvedObject"].get("name") == name)


def adoption(trial: IngressTrial) -> None:
    """Beside ingress-nginx the Ingresses of its class are served, and their statuses stay as they are."""
    trial.client.create(INGRESSES, ingress("cart", HOST, {"/": "cart"}))
    status = {"status": {"loadBalancer": {"ingress": [{"ip": FORMER_ADDRESS}]}}}
    trial.client.patch(f"{INGRESSES}/cart/status", status)
    trial.start_yumen(False)
    trial.wait_for("the adopted Ingress", lambda: trial.ask("/x") == (200, "cart"), 30)
    time.sleep(QUIET_SECONDS)
    check(trial.load_balancer("cart") == [{"ip": FORMER_ADDRESS}], f"status written beside ingress-nginx: {trial.load_balancer('cart')}")


def tls_secret(trial: IngressTrial) -> None:
    """An incomplete Secret is served with the default certificate, the complete one by itself."""
    empty = {"tls.crt": "", "tls.key": ""}
    trial.client.create(SECRETS, {"metadata": {"name": "shop-tls"}, "type": "kubernetes.io/tls", "data": empty})
    secured = ingress("cart-tls", HOST, {"/tls": "cart"})
    secured["spec"]["tls"] = [{"hosts": [HOST], "secretName": "shop-tls"}]
    trial.client.create(INGRESSES, secured)
    trial.wait_for("the redirect to https", lambda: trial.ask("/tls")[0] == 308, 10)
    own = ssl.PEM_cert_to_DER_cert((trial.folder / "tls.crt").read_text())
    trial.wait_for("the default certificate", lambda: trial.certificate() not in (b"", own), 10)
    trial.client.patch(f"{SECRETS}/shop-tls", {"data": trial.pair})
    trial.wait_for("the certificate of the Secret", lambda: trial.certificate() == own, 10)


def challenge(trial: IngressTrial) -> None:
    """The Ingress of a challenge answers over http within seconds, on a host that redirects to https."""
    token = "/.well-known/acme-challenge/token"
    begin = time.monotonic()
    trial.client.create(INGRESSES, ingress("cm-acme-http-solver", HOST, {token: "solver"}, whitelist_source_range="0.0.0.0/0,::/0"))
    trial.wait_for("the challenge", lambda: trial.ask(token) == (200, "solver"), CHALLENGE_SECONDS)
    print(f"challenge served {(time.monotonic() - begin) * 1000:.0f} ms after its write")
    trial.client.delete(f"{INGRESSES}/cm-acme-http-solver")
    trial.wait_for("the end of the challenge", lambda: trial.ask(token)[1] != "solver", CHALLENGE_SECONDS)


def events(trial: IngressTrial) -> None:
    """Annotations that are refused become events of their Ingress, and its paths stay closed."""
    trial.client.create(INGRESSES, ingress("secret", "secret.test", {"/": "cart"}, auth_type="basic", auth_secret="nobody"))
    trial.client.create(INGRESSES, ingress("wall", "wall.test", {"/": "cart"}, enable_modsecurity="true"))
    trial.wait_for("closed paths", lambda: trial.ask("/", "secret.test")[0] == trial.ask("/", "wall.test")[0] == 503, 10)
    trial.wait_for("the event of a missing Secret", lambda: "nobody" in trial.events("secret"), 30)
    trial.wait_for("the event of a firewall", lambda: "firewall" in trial.events("wall"), 30)


def default_backend(trial: IngressTrial) -> None:
    """Paths without rules of a known host, and unknown hosts, go to the default backend."""
    trial.client.create(INGRESSES, ingress("narrow", "narrow.test", {"/cart": "cart"}))
    trial.wait_for("the narrow path", lambda: trial.ask("/cart", "narrow.test") == (200, "cart"), 10)
    check(trial.ask("/other", "narrow.test") == (200, "fallback"), f"another path: {trial.ask('/other', 'narrow.test')}")
    check(trial.ask("/", "unknown.test") == (200, "fallback"), f"an unknown host: {trial.ask('/', 'unknown.test')}")


def external_name(trial: IngressTrial) -> None:
    """A Service of type ExternalName is served."""
    outside = ingress("outside", "outside.test", {"/": "outside"})
    outside["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["port"]["number"] = trial.outside.port
    trial.client.create(INGRESSES, outside)
    trial.wait_for("the Service outside", lambda: trial.ask("/", "outside.test") == (200, "outside"), 10)


def take_over(trial: IngressTrial) -> None:
    """After the switch statuses are written; a flag of ingress-nginx forbids Services of type ExternalName."""
    trial.start_yumen(True, "--disable-svc-external-name")
    trial.wait_for("the Ingress after the restart", lambda: trial.ask("/x", "narrow.test")[0] == 200, 30)
    trial.wait_for("the status", lambda: trial.load_balancer("cart") == [{"ip": OWN_ADDRESS}], 40)
    trial.wait_for("the end of the Service outside", lambda: trial.ask("/", "outside.test")[0] == 503, 10)


def main() -> int:
    args = arguments("Ingresses against a real API server.", "ingress").parse_args()
    with IngressTrial(args.folder, args.binary) as trial:
        for step in (adoption, tls_secret, challenge, events, default_backend, external_name, take_over):
            step(trial)
            print(f"passed  {step.__name__}: {(step.__doc__ or '').splitlines()[0]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The admission webhook against a real API server: certificate, `caBundle`, refusals, warnings, an absent gateway, times.

Yumen runs beside the API server, on loopback, and the ValidatingWebhookConfiguration names it by a URL. Needs no root.
Usage: conformance/kubernetes/webhook.py [--binary FILE] [--folder FOLDER] [--reviews COUNT]
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from api import ApiError, KubeObject
from cluster import ROOT, Cluster, free_ports
from fixture import wait_for

NAMESPACE = "shop"
CONFIGURATION = "yumen-admission"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
PREFIX = "nginx.ingress.kubernetes.io"
TAKEN = 'host "shop.test" and path "/cart" is already defined in ingress shop/cart'


def ingress(name: str, host: str, path: str, **annotations: str) -> KubeObject:
    backend = {"service": {"name": "cart", "port": {"number": 80}}}
    paths = [{"path": path, "pathType": "Prefix", "backend": backend}]
    named = {f"{PREFIX}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": named},
            "spec": {"ingressClassName": "yumen", "rules": [{"host": host, "http": {"paths": paths}}]}}


def configuration(url: str) -> KubeObject:
    rule = {"apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["ingresses"]}
    webhook = {"name": "validate.ingress.yumen.io", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
               "timeoutSeconds": 3, "sideEffects": "None", "rules": [rule], "clientConfig": {"url": url}}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": CONFIGURATION}, "webhooks": [webhook]}


class WebhookTrial:
    def __init__(self, folder: Path, binary: Path):
        self.folder, self.binary = folder, binary
        self.cluster = Cluster(folder / "cluster", dies_with_parent=True)
        self.status, self.webhook = (f"127.0.0.1:{port}" for port in free_ports(2))
        self.yumen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.cluster.start()
        self.client = self.cluster.client()
        self.client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.client.create("/apis/networking.k8s.io/v1/ingressclasses", {
            "metadata": {"name": "yumen"}, "spec": {"controller": "gateway.yumen.io/controller"}})
        self.client.create(f"/api/v1/namespaces/{NAMESPACE}/services", {
            "metadata": {"name": "cart"}, "spec": {"ports": [{"port": 80}]}})
        self.client.create(CONFIGURATIONS, configuration(f"https://{self.webhook}/networking/v1/ingresses"))
        self.start_yumen()

    def start_yumen(self) -> None:
        node = {"listen": [], "admin": {"listen": ""}, "control": {"listen": ""}, "status": {"listen": self.status},
                "store": {"kind": "kubernetes", "data_dir": str(self.folder / "data")},
                "kubernetes": {"kubeconfig": str(self.cluster.kubeconfig), "namespace": NAMESPACE, "identity": "trial", "linger_s": 0,
                               "ingress": {"http_port": 28080, "https_port": 28443},
                               "webhook": {"enabled": True, "listen": self.webhook, "names": ["127.0.0.1"]}}}
        file = self.folder / "yumen.yaml"
        file.write_text(json.dumps(node))
        with open(self.folder / "yumen.log", "ab") as log:
            self.yumen = subprocess.Popen([str(self.binary), "run", "--config", str(file)], stdout=log, stderr=log)
        wait_for("the caBundle", self.bundle, 60)
        wait_for("the first review", self.reviews, 30)

    def bundle(self) -> str:
        return self.client.get(f"{CONFIGURATIONS}/{CONFIGURATION}")["webhooks"][0]["clientConfig"].get("caBundle", "")

    def reviews(self) -> bool:
        """Whether the webhook refuses what it must: the API server learns the bundle with a delay."""
        return self.refusal(ingress("probe", "probe.test", "/etc/passwd")) != ""

    def refusal(self, body: KubeObject, method: str = "create") -> str:
        """The message of a dry run; empty if the object is allowed."""
        try:
            if method == "create":
                self.client.create(f"{INGRESSES}?dryRun=All", body)
            else:
                self.client.request("PUT", f"{INGRESSES}/{body['metadata']['name']}?dryRun=All", body)
        except ApiError as error:
            # The message is a text in JSON.
            return str(error).replace("\\", "")
        return ""

    def stop(self) -> None:
        if self.yumen:
            self.yumen.terminate()
            self.yumen.wait(30)
        self.cluster.stop()


def check(holds: object, message: str) -> None:
    if not holds:
        raise AssertionError(message)


def judge(trial: WebhookTrial) -> None:
    client = trial.client
    stored = client.create(INGRESSES, ingress("cart", "shop.test", "/cart"))
    wait_for("the first Ingress in force", lambda: TAKEN in trial.refusal(ingress("taking", "shop.test", "/cart")), 20)
    check(trial.refusal(ingress("other", "shop.test", "/other")) == "", "another path was refused")
    check("snippets are not allowed" in trial.refusal(ingress("s", "s.test", "/", server_snippet="return 200;")), "a snippet passed")
    check('has "/etc/passwd"' in trial.refusal(ingress("e", "e.test", "/etc/passwd")), "a path of a file passed")
    stored["spec"]["rules"][0]["http"]["paths"][0]["path"] = "/cart/new"
    check(trial.refusal(stored, "update") == "", "an update of the same Ingress was refused")
    client.patch(f"{INGRESSES}/cart", {"metadata": {"labels": {"a": "b"}}})
    client.delete(f"{INGRESSES}/cart")
    wait_for("the free path", lambda: trial.refusal(ingress("taking", "shop.test", "/cart")) == "", 20)
    check(client.find(f"/api/v1/namespaces/{NAMESPACE}/secrets/{CONFIGURATION}"), "no Secret")


def measure(trial: WebhookTrial, count: int) -> str:
    """Times of dry runs: the API server and the webhook together."""
    times = []
    for number in range(count):
        begin = time.monotonic()
        check(trial.refusal(ingress(f"new-{number}", f"n{number}.test", "/")) == "", "refused")
        times.append((time.monotonic() - begin) * 1000)
    times.sort()
    return f"{count} dry runs: p50 {times[count // 2]:.1f} ms, p99 {times[count * 99 // 100]:.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description="The admission webhook against a real API server.")
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/yumen", help="Yumen's binary")
    parser.add_argument("--folder", type=Path, default=ROOT / "target/webhook", help="folder of logs and state")
    parser.add_argument("--reviews", type=int, default=200, help="dry runs that are measured")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    trial = WebhookTrial(args.folder.resolve(), args.binary.resolve())
    try:
        trial.start()
        judge(trial)
        print(measure(trial, args.reviews))
        assert trial.yumen
        trial.yumen.kill()
        trial.yumen.wait()
        check(trial.refusal(ingress("later", "shop.test", "/etc/passwd")) == "", "an absent gateway blocks changes")
        first = trial.bundle()
        trial.start_yumen()
        check(trial.bundle() == first, "a restart issued another certificate")
        print("passed")
        return 0
    finally:
        trial.stop()


if __name__ == "__main__":
    sys.exit(main())

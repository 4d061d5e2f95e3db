#!/usr/bin/env python3
"""The admission webhook against a real API server: certificate, `caBundle`, refusals, warnings, an absent gateway, times.

Yumen runs beside the API server, on loopback, and the ValidatingWebhookConfiguration names it by a URL. Needs no root.
Usage: conformance/kubernetes/webhook.py [--binary FILE] [--folder FOLDER] [--reviews COUNT]
"""

import sys
import time

from api import ApiError, KubeObject
from cluster import free_ports
from fixture import check
from trial import INGRESSES, NAMESPACE, GatewayTrial, arguments, ingress

CONFIGURATION = "yumen-admission"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TAKEN = 'host "shop.test" and path "/cart" is already defined in ingress shop/cart'


def reviewed(name: str, host: str, path: str, **annotations: str) -> KubeObject:
    return ingress(name, host, {path: "cart"}, "yumen", **annotations)


def configuration(url: str) -> KubeObject:
    rule = {"apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["ingresses"]}
    webhook = {"name": "validate.ingress.yumen.io", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
               "timeoutSeconds": 3, "sideEffects": "None", "rules": [rule], "clientConfig": {"url": url}}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": CONFIGURATION}, "webhooks": [webhook]}


class WebhookTrial(GatewayTrial):
    def start(self) -> None:
        self.status, self.webhook = (f"127.0.0.1:{port}" for port in free_ports(2))
        super().start()
        self.add_class("yumen", "gateway.yumen.io/controller")
        self.add_service("cart", ports=[{"port": 80}])
        self.client.create(CONFIGURATIONS, configuration(f"https://{self.webhook}/networking/v1/ingresses"))
        self.start_yumen()

    def start_yumen(self) -> None:
        webhook = {"enabled": True, "listen": self.webhook, "names": ["127.0.0.1"]}
        self.run(self.status, {"ingress": {"http_port": 28080, "https_port": 28443}, "webhook": webhook})
        self.wait_for("the caBundle", self.bundle, 60)
        self.wait_for("the first review", self.reviews, 30)

    def bundle(self) -> str:
        return self.client.get(f"{CONFIGURATIONS}/{CONFIGURATION}")["webhooks"][0]["clientConfig"].get("caBundle", "")

    def reviews(self) -> bool:
        """Whether the webhook refuses what it must: the API server learns the bundle with a delay."""
        return self.refusal(reviewed("probe", "probe.test", "/etc/passwd")) != ""

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


def judge(trial: WebhookTrial) -> None:
    client = trial.client
    stored = client.create(INGRESSES, reviewed("cart", "shop.test", "/cart"))
    trial.wait_for("the first Ingress in force", lambda: TAKEN in trial.refusal(reviewed("taking", "shop.test", "/cart")), 20)
    check(trial.refusal(reviewed("other", "shop.test", "/other")) == "", "another path was refused")
    check("snippets are not allowed" in trial.refusal(reviewed("s", "s.test", "/", server_snippet="return 200;")), "a snippet passed")
    check('has "/etc/passwd"' in trial.refusal(reviewed("e", "e.test", "/etc/passwd")), "a path of a file passed")
    stored["spec"]["rules"][0]["http"]["paths"][0]["path"] = "/cart/new"
    check(trial.refusal(stored, "update") == "", "an update of the same Ingress was refused")
    client.patch(f"{INGRESSES}/cart", {"metadata": {"labels": {"a": "b"}}})
    client.delete(f"{INGRESSES}/cart")
    trial.wait_for("the free path", lambda: trial.refusal(reviewed("taking", "shop.test", "/cart")) == "", 20)
    check(client.find(f"/api/v1/namespaces/{NAMESPACE}/secrets/{CONFIGURATION}"), "no Secret")


def measure(trial: WebhookTrial, count: int) -> str:
    """Times of dry runs: the API server and the webhook together."""
    times = []
    for number in range(count):
        begin = time.monotonic()
        check(trial.refusal(reviewed(f"new-{number}", f"n{number}.test", "/")) == "", "refused")
        times.append((time.monotonic() - begin) * 1000)
    times.sort()
    return f"{count} dry runs: p50 {times[count // 2]:.1f} ms, p99 {times[count * 99 // 100]:.1f} ms"


def main() -> int:
    parser = arguments("The admission webhook against a real API server.", "webhook")
    parser.add_argument("--reviews", type=int, default=200, help="dry runs that are measured")
    args = parser.parse_args()
    with WebhookTrial(args.folder, args.binary) as trial:
        judge(trial)
        print(measure(trial, args.reviews))
        assert trial.yumen
        trial.yumen.kill()
        trial.yumen.wait()
        check(trial.refusal(reviewed("later", "shop.test", "/etc/passwd")) == "", "an absent gateway blocks changes")
        first = trial.bundle()
        trial.start_yumen()
        check(trial.bundle() == first, "a restart issued another certificate")
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

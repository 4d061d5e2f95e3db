"""The Helm chart, rendered by the pinned helm: scenarios, goldens, plain manifests, refusals."""

import difflib
import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHART = ROOT / "deploy/helm/yumen"
PLAIN = ROOT / "deploy/kubernetes/yumen.yaml"
SCENARIOS = HERE / "scenarios"
GOLDENS = HERE / "goldens"
HELM_VERSION = "3.22.0"
HELM = Path.home() / ".cache/yumen-helm" / HELM_VERSION / "helm"
RELEASE, NAMESPACE = "yumen", "yumen-system"
# Rendering without a cluster: the version of Kubernetes of the tests.
OFFLINE = ["--kube-version", "1.36.3"]
# Files of the chart that are copies, because a chart cannot refer to files outside.
COPIES = {CHART / "files/yumen.dashboard.json": ROOT / "deploy/grafana/yumen.json",
          CHART / "files/yumen.rules.yaml": ROOT / "deploy/prometheus/yumen.rules.yaml"}

PLAIN_HEAD = """# Yumen as a controller of the Gateway API, and its class. Install the definitions of the Gateway API first.
# Generated from deploy/helm/yumen by `make test-helm ARGS=--update`: do not edit.
apiVersion: v1
kind: Namespace
metadata:
  name: yumen-system
"""

# Values that must be refused: the name, the values as --set arguments, a part of the message.
REFUSALS = [
    ("unknown value", ["replicaCounts=2"], "replicaCounts"),
    ("a type", ["kind=StatefulSet"], "kind"),
    ("a port", ["ports.status=70000"], "status"),
    ("a digest", ["image.digest=abc"], "digest"),
    ("a template of NGINX", ["controller.customTemplate.configMapName=own"], "controller.customTemplate: a template"),
    ("modules of NGINX", ["controller.extraModules[0].name=waf"], "controller.extraModules: modules"),
    ("ModSecurity", ["controller.config.enable-modsecurity=true"], "controller.config.enable-modsecurity: there is no"),
    ("namespaced rights", ["controller.kind=Deployment", "rbac.scope=true"], "rbac.scope: objects of all namespaces"),
    ("scaling of a DaemonSet", ["kind=DaemonSet", "autoscaling.enabled=true"], "need kind: Deployment"),
    ("two scalers", ["autoscaling.enabled=true", "keda.enabled=true"], "exclude each other"),
    ("a scaler without a trigger", ["keda.enabled=true"], "keda.triggers"),
    ("an exposed Admin API in plain text", ["admin.expose=true"], "admin.tlsSecret"),
    ("a monitor without a Service", ["metrics.serviceMonitor.enabled=true"], "metrics.service.enabled"),
    ("a short grace period", ["terminationGracePeriodSeconds=20", "config.timeouts.drain_ms=60000"], "need 90"),
    ("no time", ["controller.config.keep-alive=soon"], "\"soon\" is no time"),
]


class ChartError(Exception):
    """A rendering that failed or differs."""


def helm(*args: object) -> str:
    """Runs helm without a cluster and without the user's configuration."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "KUBE"))}
    run = subprocess.run([HELM, *map(str, args)], capture_output=True, text=True, env=environment)
    if run.returncode:
        raise ChartError((run.stderr or run.stdout).strip())
    return run.stdout


def render(*args: object) -> str:
    """The manifests of the chart; random values are masked."""
    text = helm("template", RELEASE, CHART, "--namespace", NAMESPACE, *OFFLINE, *args)
    return re.sub(r"^  key: \S+$", "  key: bWFza2Vk", text, flags=re.MULTILINE)


def scenarios() -> list[Path]:
    return sorted(SCENARIOS.glob("*.yaml"))


def plain() -> str:
    """The manifests for kubectl: without marks of Helm."""
    text = render("--values", SCENARIOS / "plain.yaml")
    dropped = re.compile(r" *(helm\.sh/chart|app\.kubernetes\.io/(managed-by|version)): .*|# Source: .*")
    return PLAIN_HEAD + "".join(f"{line}\n" for line in text.splitlines() if not dropped.fullmatch(line))


def expected() -> dict[Path, str]:
    """All generated files with their contents."""
    files = {copy: source.read_text() for copy, source in COPIES.items()}
    for values in scenarios():
        files[GOLDENS / values.name] = render("--values", values)
    files[PLAIN] = plain()
    return files


def update() -> None:
    """Writes all generated files. Copies first, because the chart reads them."""
    for copy, source in COPIES.items():
        copy.write_text(source.read_text())
    GOLDENS.mkdir(exist_ok=True)
    for path, text in expected().items():
        path.write_text(text)


def stale() -> list[str]:
    """Differences between the generated files and those of the repository."""
    differences = []
    for path, text in expected().items():
        found = path.read_text() if path.exists() else ""
        if found != text:
            name = str(path.relative_to(ROOT))
            lines = difflib.unified_diff(found.splitlines(), text.splitlines(), name, "rendered", lineterm="", n=1)
            differences.append("\n".join(list(lines)[:60]))
    return differences


def lint() -> list[str]:
    """Findings of helm lint, by scenario."""
    findings = []
    for values in scenarios():
        try:
            helm("lint", CHART, "--strict", *OFFLINE, "--namespace", NAMESPACE, "--values", values)
        except ChartError as error:
            findings.append(f"helm lint with {values.name}: {error}")
    return findings


def accepted_mistakes() -> list[str]:
    """Values that the chart accepts although it must refuse them, or refuses without the reason."""
    findings = []
    for name, sets, reason in REFUSALS:
        try:
            render(*(word for one in sets for word in ("--set", one)))
            findings.append(f"{name} ({', '.join(sets)}): accepted")
        except ChartError as error:
            if reason not in str(error):
                findings.append(f"{name}: the message lacks {reason!r}: {error}")
    return findings


def refused_node_files(binary: Path, folder: Path) -> list[str]:
    """Node files of goldens that the binary refuses. One with Ingresses is left out if the binary does not serve them."""
    environment = os.environ | {"HOST_IP": "192.0.2.1", "YUMEN_ADMIN_KEY": "0123456789abcdef0123456789abcdef"}
    has_ingress = serves_ingresses(binary)
    folder.mkdir(parents=True, exist_ok=True)
    findings = []
    for golden in sorted(GOLDENS.glob("*.yaml")):
        block = re.search(r"^  yumen\.yaml: \|\n((?:    .*\n|\n)+)", golden.read_text(), flags=re.MULTILINE)
        if not block:
            findings.append(f"{golden.name}: no node file")
            continue
        text = re.sub(r"^    ", "", block[1], flags=re.MULTILINE)
        if "\n  ingress:\n" in text and not has_ingress:
            print(f"          {golden.name}: its node file is not checked: this binary serves no Ingresses", flush=True)
            continue
        node = folder / golden.name
        # Certificates exist in the pod only.
        node.write_text(re.sub(r"^  tls:\n(?:    .*\n)+", "", text, flags=re.MULTILINE).replace("  listen: :9180\n", ""))
        run = subprocess.run([binary, "check", "--kubernetes", "-f", PLAIN, "--config", node], env=environment,
                             capture_output=True, text=True)
        if run.returncode:
            findings.append(f"{golden.name}: {run.stdout}{run.stderr}".strip())
    return findings


def serves_ingresses(binary: Path) -> bool:
    """Whether the node file of a binary has settings of Ingresses."""
    reference = subprocess.run([binary, "reference", "config"], capture_output=True, text=True, check=True).stdout
    return "\n  ingress:\n" in reference

"""Yumen as a process beside the API server, and Ingresses: the common part of trials against a cluster without a node."""

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Self

from api import KubeObject
from cluster import ROOT, Cluster
from fixture import wait_for

NAMESPACE = "shop"
INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
PREFIX = "nginx.ingress.kubernetes.io"


def ingress(name: str, host: str, paths: dict[str, str], class_name: str = "nginx", **annotations: str) -> KubeObject:
    """An Ingress; `paths` are Services by path."""
    rules = [{"path": path, "pathType": "Prefix", "backend": {"service": {"name": service, "port": {"number": 80}}}}
             for path, service in paths.items()]
    named = {f"{PREFIX}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": named},
            "spec": {"ingressClassName": class_name, "rules": [{"host": host, "http": {"paths": rules}}]}}


class GatewayTrial:
    """A control plane and a process of Yumen for the time of a `with` block."""

    def __init__(self, folder: Path, binary: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.binary = folder.resolve(), binary.resolve()
        self.cluster = Cluster(self.folder / "cluster", dies_with_parent=True)
        self.yumen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.cluster.start()
        self.client = self.cluster.client()
        self.client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def add_class(self, name: str, controller: str) -> None:
        self.client.create("/apis/networking.k8s.io/v1/ingressclasses", {
            "metadata": {"name": name}, "spec": {"controller": controller}})

    def add_service(self, name: str, **spec: object) -> None:
        self.client.create(f"/api/v1/namespaces/{NAMESPACE}/services", {"metadata": {"name": name}, "spec": spec})

    def run(self, status: str, kubernetes: KubeObject, *flags: str) -> None:
        """Starts Yumen with its status listener, again if it runs."""
        self.end_yumen()
        node = {"listen": [], "admin": {"listen": ""}, "control": {"listen": ""}, "status": {"listen": status},
                "store": {"kind": "kubernetes", "data_dir": str(self.folder / "data")},
                "kubernetes": {"kubeconfig": str(self.cluster.kubeconfig), "namespace": NAMESPACE, "identity": "trial",
                               "linger_s": 0, **kubernetes}}
        file = self.folder / "yumen.yaml"
        file.write_text(json.dumps(node))
        with open(self.folder / "yumen.log", "ab") as log:
            self.yumen = subprocess.Popen([str(self.binary), "run", *flags, "--config", str(file)], stdout=log, stderr=log)

    def wait_for(self, subject: str, holds: Callable[[], object], seconds: float) -> None:
        """Polls until the condition holds, or the process of Yumen has ended."""
        wait_for(subject, lambda: bool(holds()), seconds, lambda: self.yumen is None or self.yumen.poll() is None)

    def end_yumen(self) -> None:
        if self.yumen:
            self.yumen.terminate()
            self.yumen.wait(30)
            self.yumen = None

    def stop(self) -> None:
        self.end_yumen()
        self.cluster.stop()


def arguments(description: str, folder: str) -> argparse.ArgumentParser:
    """The options of all trials."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--binary", type=Path, default=ROOT / "target/release/yumen", help="Yumen's binary")
    parser.add_argument("--folder", type=Path, default=ROOT / "target" / folder, help="folder of logs and state")
    return parser

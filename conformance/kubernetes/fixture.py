"""A cluster with a node for the time of a `with` block: control plane, stand-in kubelet, and their removal at any end."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, TracebackType

import network
from api import KubeObject
from cluster import BIN, HERE, READY_SECONDS, Cluster, ClusterError

STOP_SECONDS = 30


class ClusterFixture:
    """Folder `cluster` has the data and logs of the control plane, `pods` those of pods, `kubelet.log` the node's."""

    def __init__(self, folder: Path, images: dict[str, Path], channel: str = "experimental", is_audited: bool = False):
        self.is_audited = is_audited
        self.folder, self.images, self.channel = folder, images, channel
        self.cluster = Cluster(folder / "cluster", dies_with_parent=True)
        self.kubelet: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ClusterFixture":
        if not network.is_permitted():
            raise ClusterError("network namespaces need root")
        # Like ^C, so that the `with` block ends in order.
        signal.signal(signal.SIGTERM, interrupt)
        try:
            if self.is_audited:
                self.cluster.audit_log = self.cluster.folder / "audit.log"
            self.cluster.start()
            self._start_kubelet()
            self.cluster.install_crds(self.channel)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the pods, the node and the control plane. A second ^C does not interrupt it."""
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            if self.kubelet:
                self.kubelet.terminate()
                try:
                    self.kubelet.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    self.kubelet.kill()
                    self.kubelet.wait()
                # Nothing is left to remove unless the node was killed.
                network.tear_down()
                self.kubelet = None
            self.cluster.stop()
        finally:
            signal.signal(signal.SIGINT, previous)

    def _start_kubelet(self) -> None:
        images = [part for name, path in self.images.items() for part in ("--image", f"{name}={path}")]
        log = self.folder / "kubelet.log"
        with open(log, "wb") as out:
            self.kubelet = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", sys.executable, HERE / "kubelet.py", "--kubeconfig",
                 self.cluster.kubeconfig, "--folder", self.folder / "pods", *images],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        kubelet = self.kubelet
        wait_for("the node", lambda: " ready\n" in log.read_text(), READY_SECONDS, lambda: kubelet.poll() is None)

    def wait_rollout(self, namespace: str, deployment: str, seconds: int = 60) -> None:
        """Waits until all replicas of a Deployment are ready and none of an earlier version is left."""
        self.cluster.kubectl("rollout", "status", f"deployment/{deployment}", "-n", namespace, f"--timeout={seconds}s")

    def balancer_address(self, namespace: str, service: str, seconds: float = 30) -> str:
        """The address of a Service of type LoadBalancer, as soon as it has one."""
        client = self.cluster.client()
        path = f"/api/v1/namespaces/{namespace}/services/{service}"
        found: list[KubeObject] = []

        def look() -> bool:
            status = (client.find(path) or {}).get("status") or {}
            found[:] = status.get("loadBalancer", {}).get("ingress") or []
            return bool(found)

        wait_for(f"the address of Service {namespace}/{service}", look, seconds)
        return found[0]["ip"]


def wait_for(subject: str, holds: Callable[[], bool], seconds: float, alive: Callable[[], bool] = lambda: True) -> None:
    """Polls until the condition holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end or not alive():
            raise ClusterError(f"{subject}: not ready within {seconds:.0f} s" if alive() else f"{subject}: the process ended")
        time.sleep(0.05)


def check(holds: object, message: str) -> None:
    if not holds:
        raise ClusterError(message)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def suite_images() -> dict[str, Path]:
    """The programs of the images that the suite's manifests name."""
    return {"echo-basic": BIN / "echo-basic", "coredns": BIN / "coredns"}

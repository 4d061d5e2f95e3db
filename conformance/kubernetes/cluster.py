#!/usr/bin/env python3
"""A Kubernetes control plane without containers: etcd, kube-apiserver and kube-controller-manager on loopback.

Ports are free ones, data and logs are in a folder, RBAC is on. `kubelet.py` runs the pods. A lock allows one cluster of a site at a
time (`network.py`), because clusters share the two or four cores of a machine; it is held until etcd ends.
`scripts/deps.sh kubernetes` builds the programs.
Usage: conformance/kubernetes/cluster.py up FOLDER [--crds standard|experimental]
       conformance/kubernetes/cluster.py down FOLDER
       conformance/kubernetes/cluster.py token FOLDER NAMESPACE SERVICE_ACCOUNT
"""

import argparse
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import network
from api import ApiAccess, ApiClient

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KUBERNETES_VERSION = "1.36.3"
GATEWAY_API_VERSION = "1.6.3"
CACHE = Path.home() / ".cache/yumen-kubernetes"
BIN = CACHE / KUBERNETES_VERSION
SERVICE_NETWORK = "10.96.0.0/16"
# Controllers that need no cloud, no volumes and no nodes.
CONTROLLERS = """deployment-controller daemonset-controller replicaset-controller endpointslice-controller namespace-controller job-controller
serviceaccount-controller serviceaccount-token-controller garbage-collector-controller clusterrole-aggregation-controller
root-ca-certificate-publisher-controller""".split()
READY_SECONDS = 90
# Time that a program has between SIGTERM and SIGKILL.
STOP_SECONDS = 10


class ClusterError(Exception):
    """A cluster that cannot start; the message names the reason and the log."""


def free_ports(count: int) -> list[int]:
    """Free ports of 127.0.0.1, each different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def etcd_program() -> str:
    """The etcd that scripts/deps.sh built, else the one of the system."""
    built = ROOT / "target/tools/etcd-current"
    found = str(built) if built.exists() else shutil.which("etcd")
    if not found:
        raise ClusterError("etcd is missing: run scripts/deps.sh kubernetes")
    return found


def start_time(pid: int) -> str | None:
    """Start of a process in ticks since boot, which tells it from a later process with the same id; None if it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


class Cluster:
    """The control plane in a folder. `start` and `stop` may be called by different processes."""

    def __init__(self, folder: Path, dies_with_parent: bool = False):
        self.folder = folder.resolve()
        self.kubeconfig = self.folder / "kubeconfig"
        self.state = self.folder / "processes.json"
        self.dies_with_parent = dies_with_parent
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.lock: int | None = None
        # Ports of etcd, its peers, the API server and the controllers.
        self.ports: list[int] = []
        # Where the API server records status writes, if anywhere.
        self.audit_log: Path | None = None

    def start(self) -> None:
        """Starts everything and waits until the API server is ready."""
        missing = [name for name in ("kube-apiserver", "kube-controller-manager", "kubectl") if not (BIN / name).exists()]
        if missing:
            raise ClusterError(f"{', '.join(missing)} missing in {BIN}: run scripts/deps.sh kubernetes")
        self.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("etcd", "certificates", "certificates-controllers"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self._acquire_lock()
        self.ports = free_ports(4)
        client, peer, api, controllers = self.ports
        self._write_credentials(api)
        try:
            self._start_etcd(client, peer)
            self._start_api_server(client, api)
            self.client().wait_ready(lambda: self.is_alive("apiserver"), READY_SECONDS)
            self._start_controllers(controllers)
        except (OSError, TimeoutError) as error:
            self.stop()
            raise ClusterError(f"{error}; see {self.folder}/*.log") from error

    def stop(self) -> None:
        """Ends the processes that `start` recorded, in reverse order, and nothing else."""
        if self.state.exists():
            for name, (pid, started) in reversed(json.loads(self.state.read_text()).items()):
                self._end(name, pid, started)
            self.state.unlink()
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def stop_api_server(self) -> None:
        """Ends the API server alone; `resume_api_server` starts it again on the same port with the same data."""
        pid, started = json.loads(self.state.read_text())["apiserver"]
        self._end("apiserver", pid, started)

    def resume_api_server(self) -> None:
        client, _, api, _ = self.ports
        self._start_api_server(client, api)
        self.client().wait_ready(lambda: self.is_alive("apiserver"), READY_SECONDS)

    def client(self) -> ApiClient:
        """A client with the rights of an administrator."""
        return ApiClient(ApiAccess.read(self.kubeconfig))

    def client_of(self, namespace: str, service_account: str) -> ApiClient:
        """A client with the rights of a ServiceAccount, as RBAC grants them."""
        access = ApiAccess.read(self.kubeconfig)
        token = self.token_of(namespace, service_account)
        return ApiClient(ApiAccess(access.host, access.port, token, access.authority))

    def token_of(self, namespace: str, service_account: str) -> str:
        """A token of a ServiceAccount, valid for a day."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        return self.client().create(path, request)["status"]["token"]

    def kubectl(self, *args: object, stdin: str | None = None) -> str:
        """Runs kubectl as administrator and returns its output."""
        command = [str(BIN / "kubectl"), "--kubeconfig", str(self.kubeconfig), *map(str, args)]
        run = subprocess.run(command, input=stdin, capture_output=True, text=True)
        if run.returncode:
            raise ClusterError(f"kubectl {' '.join(map(str, args))}: {run.stderr.strip()}")
        return run.stdout

    def apply(self, *manifests: Path) -> None:
        """Applies manifests, files or folders. Server-side, because CRDs exceed the annotation of a client-side apply."""
        files = [arg for manifest in manifests for arg in ("-f", manifest)]
        self.kubectl("apply", "--server-side", *files)

    def install_crds(self, channel: str) -> None:
        """Installs the Gateway API of a channel: standard or experimental."""
        self.apply(BIN / "crds" / channel)
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")

    def is_alive(self, name: str) -> bool:
        recorded = json.loads(self.state.read_text()).get(name) if self.state.exists() else None
        return recorded is not None and start_time(recorded[0]) == recorded[1]

    def _acquire_lock(self) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        lock = os.open(CACHE / f"lock{network.SITE or ''}", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another cluster on this machine", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        self.lock = lock

    def _write_credentials(self, port: int) -> None:
        token = secrets.token_hex(16)
        (self.folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
        key = self.folder / "accounts.key"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        # JSON is YAML; the server's own certificate is its authority.
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "yumen",
            "clusters": [{"name": "yumen", "cluster": {
                "server": f"https://127.0.0.1:{port}",
                "certificate-authority": str(self.folder / "certificates/apiserver.crt")}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "yumen", "context": {"cluster": "yumen", "user": "admin"}}]}, indent=1) + "\n")
        self.kubeconfig.chmod(0o600)

    def _start_etcd(self, client: int, peer: int) -> None:
        url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._spawn("etcd", etcd_program(), f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync",
                    f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--listen-peer-urls={peer_url}",
                    f"--initial-advertise-peer-urls={peer_url}", f"--initial-cluster=default={peer_url}")

    def _start_api_server(self, etcd: int, port: int) -> None:
        key = self.folder / "accounts.key"
        audit = self._audit_options()
        self._spawn("apiserver", BIN / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}",
                    "--bind-address=127.0.0.1", f"--secure-port={port}", "--advertise-address=127.0.0.1",
                    "--endpoint-reconciler-type=none", f"--cert-dir={self.folder}/certificates",
                    f"--service-cluster-ip-range={SERVICE_NETWORK}", "--authorization-mode=RBAC",
                    f"--token-auth-file={self.folder}/tokens.csv",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
                    "--enable-priority-and-fairness=false", *audit)
        self._wait_for_certificate()

    def _audit_options(self) -> list[str]:
        if not self.audit_log:
            return []
        policy = self.folder / "audit.yaml"
        rules = [{"level": "Metadata", "verbs": ["patch", "update"],
                  "resources": [{"group": "gateway.networking.k8s.io", "resources": ["*/status"]}]}, {"level": "None"}]
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules,
                                      "omitStages": ["RequestReceived"]}))
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]

    def _wait_for_certificate(self) -> None:
        end = time.monotonic() + READY_SECONDS
        while not (self.folder / "certificates/apiserver.crt").exists():
            if time.monotonic() > end or not self.is_alive("apiserver"):
                raise TimeoutError("the API server made no certificate")
            time.sleep(0.05)

    def _start_controllers(self, port: int) -> None:
        kubeconfig = self.kubeconfig
        self._spawn("controllers", BIN / "kube-controller-manager", f"--kubeconfig={kubeconfig}",
                    f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
                    "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={self.folder}/certificates-controllers",
                    f"--service-account-private-key-file={self.folder}/accounts.key",
                    f"--root-ca-file={self.folder}/certificates/apiserver.crt", "--leader-elect=false",
                    # The defaults, 20 requests per second, would be the bottleneck of a suite.
                    "--kube-api-qps=200", "--kube-api-burst=400",
                    f"--controllers={','.join(CONTROLLERS)}")

    def _spawn(self, name: str, program: object, *args: str) -> None:
        prefix = ["setpriv", "--pdeathsig", "KILL"] if self.dies_with_parent else []
        # A further holder of the lock, so that the lock lasts as long as etcd.
        keep = (self.lock,) if name == "etcd" and self.lock is not None else ()
        with open(self.folder / f"{name}.log", "wb") as log:
            child = subprocess.Popen([*prefix, str(program), *args], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     start_new_session=True, pass_fds=keep)
        self.children[name] = child
        recorded = json.loads(self.state.read_text()) if self.state.exists() else {}
        recorded[name] = [child.pid, start_time(child.pid)]
        self.state.write_text(json.dumps(recorded))

    def _end(self, name: str, pid: int, started: str) -> None:
        """SIGTERM, then SIGKILL; a process that started at another time is somebody else's."""
        child = self.children.pop(name, None)
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
            if start_time(pid) != started:
                break
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            end = time.monotonic() + seconds
            while start_time(pid) == started and time.monotonic() < end:
                time.sleep(0.02)
        if child:
            child.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="A Kubernetes control plane without containers.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster; its kubeconfig is FOLDER/kubeconfig")
    up.add_argument("--crds", choices=("standard", "experimental"), help="install this channel of the Gateway API")
    down = commands.add_parser("down", help="stop the cluster")
    token = commands.add_parser("token", help="print a token of a ServiceAccount")
    for command in (up, down, token):
        command.add_argument("folder", type=Path)
    token.add_argument("namespace")
    token.add_argument("service_account")
    args = parser.parse_args()
    cluster = Cluster(args.folder)
    try:
        if args.command == "up":
            begin = time.monotonic()
            cluster.start()
            if args.crds:
                cluster.install_crds(args.crds)
            print(f"ready after {time.monotonic() - begin:.1f} s: export KUBECONFIG={cluster.kubeconfig}")
        elif args.command == "down":
            cluster.stop()
        else:
            print(cluster.token_of(args.namespace, args.service_account))
    except ClusterError as error:
        sys.exit(f"cluster: {error}")


if __name__ == "__main__":
    main()

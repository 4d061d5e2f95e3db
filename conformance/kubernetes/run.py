#!/usr/bin/env python3
"""The conformance suite of the Gateway API, all profiles and features, against Yumen in a cluster without containers.

Yumen runs as the Deployment of deploy/kubernetes/yumen.yaml, with the rights of its ServiceAccount only. Every failing test must
be listed in known_failures.txt with its reason; a listed test that passes is a failure too. A full run writes report-1.6.3.yaml.
`scripts/deps.sh kubernetes` builds the programs. Needs root, for network namespaces.
Usage: conformance/kubernetes/run.py [--short] [--test NAME]... [--replicas N] [--outside] [--keep] [--binary FILE]
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import network
from api import KubeObject
from balancer import UNUSABLE_ADDRESS, USABLE_ADDRESS
from cluster import BIN, GATEWAY_API_VERSION, HERE, ROOT, ClusterError
from fixture import ClusterFixture, suite_images, wait_for
from pod import OUTSIDE
from results import SuiteLog, judge, read_known_failures

MANIFEST = ROOT / "deploy/kubernetes/yumen.yaml"
REPORT = HERE / f"report-{GATEWAY_API_VERSION}.yaml"
NAMESPACE = "yumen-system"
PROFILES = "GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP,GATEWAY-UDP"
ORGANIZATION = PROJECT = "yumen"
URL = CONTACT = "https://yumen.io"
# Each area of the controller once, in about a minute.
SHORT = """GatewayModifyListeners GatewayStaticAddresses GatewayInfrastructureMetadata GatewaySecretReferenceGrantSpecific
GatewayFrontendClientCertificateValidation GatewayHTTPListenerIsolation HTTPRouteMatching HTTPRoutePathMatchOrder
HTTPRouteHTTPSListener HTTPRouteMultipleGateways HTTPRouteRewritePath HTTPRouteRedirectPath HTTPRouteCORS
HTTPRouteRequestMirror HTTPRouteWeight HTTPRouteBackendProtocolWebSocket HTTPRouteServiceTypes BackendTLSPolicy
ListenerSetHTTPRouting GRPCExactMethodMatching TLSRouteSimpleSameNamespace TLSRouteTerminateSimpleSameNamespace
TCPRouteReferenceGrant UDPRoute""".split()
READY_SECONDS = 60
# Ends of Yumen before it was ready, after which the run gives up.
FAILURES_MAX = 3
# End of a log that is printed.
LOG_CHARACTERS = 1500
SUITE_MINUTES = 40


class Yumen:
    """The gateway under test: a Deployment of the cluster, or a process of this machine that a pod stands for."""

    def __init__(self, world: ClusterFixture, binary: Path, replicas: int, outside: bool):
        self.world, self.binary, self.replicas, self.outside = world, binary, replicas, outside
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Applies the manifest and waits until all replicas are ready."""
        replicas = 0 if self.outside else self.replicas
        manifest = self.world.folder / "yumen.yaml"
        manifest.write_text(re.sub(r"replicas: \d+", f"replicas: {replicas}", MANIFEST.read_text()))
        self.world.cluster.apply(manifest)
        if self.outside:
            self._start_outside()
        try:
            wait_for("Yumen", self._is_ready, READY_SECONDS, lambda: self.failures() < FAILURES_MAX)
        except ClusterError as error:
            logs = "\n".join(path.read_text()[-LOG_CHARACTERS:] for path in self.logs())
            raise ClusterError(f"{error}\n{logs}") from error

    def _is_ready(self) -> bool:
        ready = [one["type"] == "Ready" and one["status"] == "True"
                 for pod in self._pods() for one in pod["status"].get("conditions") or []]
        return sum(ready) == (1 if self.outside else self.replicas)

    def failures(self) -> int:
        """The number of times that a replica ended on its own."""
        if self.process:
            return FAILURES_MAX if self.process.poll() is not None else 0
        return sum(one["restartCount"] for pod in self._pods() for one in pod["status"].get("containerStatuses") or [])

    def _pods(self) -> list[KubeObject]:
        found: list[KubeObject] = self.world.cluster.client().get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return found

    def logs(self) -> list[Path]:
        """The logs of all replicas, those that ended included."""
        folder = self.world.folder
        return [*sorted(folder.glob(f"pods/{NAMESPACE}_yumen-*/yumen.log")), *folder.glob("outside.log")]

    def _start_outside(self) -> None:
        folder = self.world.folder
        variables = os.environ | {"POD_NAME": "yumen-outside", "POD_NAMESPACE": NAMESPACE, "POD_IP": network.HOST}
        with open(folder / "outside.log", "wb") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", self.binary, "run", "--kubernetes", "--kubeconfig",
                 self.world.cluster.kubeconfig, "--data-dir", folder / "outside", "--status", f"{network.HOST}:9091"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True)
        self.world.cluster.client().create(f"/api/v1/namespaces/{NAMESPACE}/pods", outside_pod())

    def stop(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def outside_pod() -> KubeObject:
    """A pod whose address is that of this machine, so that Gateways lead to the process outside."""
    probe = {"httpGet": {"path": "/status/ready", "port": 9091}, "periodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "yumen-outside", "namespace": NAMESPACE, "annotations": {OUTSIDE: "true"},
                         "labels": {"app.kubernetes.io/name": "yumen"}},
            "spec": {"serviceAccountName": "yumen", "containers": [{"name": "yumen", "image": "yumen", "readinessProbe": probe}]}}


def suite_command(world: ClusterFixture, tests: list[str], version: str) -> list[str]:
    """The suite with all features but those of meshes; all tests if none is named."""
    command = [BIN / "gateway-conformance", "-test.v", f"-test.timeout={SUITE_MINUTES}m", "-test.run=^TestConformance$",
               "--gateway-class=yumen", f"--conformance-profiles={PROFILES}", "--all-features",
               f"--usable-address={USABLE_ADDRESS}", f"--unusable-address={UNUSABLE_ADDRESS}",
               # The cluster ends with the run.
               "--cleanup-base-resources=false", f"--report-output={world.folder}/report.yaml",
               f"--organization={ORGANIZATION}", f"--project={PROJECT}", f"--url={URL}", f"--contact={CONTACT}",
               f"--version={version}"]
    return [str(word) for word in (*command, *((f"--only-tests={','.join(tests)}",) if tests else ()))]


def run_suite(world: ClusterFixture, tests: list[str], version: str) -> SuiteLog:
    """Runs the suite and prints each result as it comes."""
    log = SuiteLog(world.folder / "suite.log", world.folder / "tests")
    environment = os.environ | {"KUBECONFIG": str(world.cluster.kubeconfig)}
    suite = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *suite_command(world, tests, version)], env=environment,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", start_new_session=True)
    assert suite.stdout
    try:
        with log:
            for line in suite.stdout:
                if result := log.take(line):
                    print(result, flush=True)
        suite.wait()
    finally:
        if suite.poll() is None:
            suite.kill()
            suite.wait()
    return log


def check_programs(binary: Path) -> None:
    needed = [BIN / name for name in ("kube-apiserver", "kube-controller-manager", "kubectl", "gateway-conformance",
                                      "echo-basic", "coredns", "crds")]
    if missing := [path.name for path in needed if not path.exists()]:
        text = f"{', '.join(missing)} missing in {BIN}: scripts/deps.sh kubernetes builds them"
        if os.environ.get("SKIP_IF_OFFLINE"):
            print(f"skipped: {text}")
            sys.exit(0)
        raise ClusterError(text)
    if not binary.exists():
        raise ClusterError(f"{binary} is missing: run make build, or name a program with --binary")


def hold(world: ClusterFixture) -> None:
    print(f"the cluster stays until ^C: export KUBECONFIG={world.cluster.kubeconfig} PATH=$PATH:{BIN}", flush=True)
    signal.pause()


def conform(args: argparse.Namespace, tests: list[str]) -> int:
    """Brings everything up, runs the suite and judges its results; returns the exit status."""
    folder: Path = args.logs
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    version = subprocess.run([args.binary, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    begin = time.monotonic()
    with ClusterFixture(folder, suite_images() | {"yumen": args.binary}, args.channel) as world:
        yumen = Yumen(world, args.binary, args.replicas, args.outside)
        try:
            yumen.start()
            print(f"ready after {time.monotonic() - begin:.1f} s; logs are in {folder}", flush=True)
            log = run_suite(world, tests, version)
            failed = judge(log.results, read_known_failures(HERE / "known_failures.txt"), tests)
            if not log.results:
                print(f"FAILED: the suite ran no test\n{log.tail()}")
            elif not tests:
                shutil.copyfile(folder / "report.yaml", REPORT)
                print(f"report: {REPORT}")
            print(f"{time.monotonic() - begin:.0f} s; logs are in {folder}")
            if failures := yumen.failures():
                print(f"FAILED: Yumen ended {failures} times; see {', '.join(map(str, yumen.logs()))}")
                failed += failures
            if args.keep:
                hold(world)
        finally:
            yumen.stop()
    return 1 if failed or not log.results else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="The conformance suite of the Gateway API.")
    parser.add_argument("--short", action="store_true", help=f"{len(SHORT)} tests over all profiles")
    parser.add_argument("--test", action="append", default=[], metavar="NAME", help="run this test; repeatable")
    parser.add_argument("--replicas", type=int, default=1, help="replicas of Yumen [default: 1]")
    parser.add_argument("--outside", action="store_true",
                        help="run Yumen as a process of this machine, with the rights of an administrator")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up after the suite, until ^C")
    parser.add_argument("--binary", type=Path, default=Path(os.environ.get("BINARY", ROOT / "target/release/yumen")),
                        help="Yumen's binary")
    parser.add_argument("--logs", type=Path, default=ROOT / "target/conformance-kubernetes",
                        help="folder of logs, replaced by each run")
    parser.add_argument("--channel", choices=("standard", "experimental"), default="experimental",
                        help="channel of the CRDs [default: experimental]")
    args = parser.parse_args()
    args.binary, args.logs = args.binary.resolve(), args.logs.resolve()
    try:
        check_programs(args.binary)
        return conform(args, [*args.test, *(SHORT if args.short else ())])
    except ClusterError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Yumen in a cluster without containers while everything around it changes: rights, pods, routes, the API server, its own replicas.

Each check is a function `check_*`, whose first line says what it proves. The network is that of `network.py`; Yumen runs with the
rights of deploy/kubernetes/yumen.yaml only. Needs root.
Usage: conformance/kubernetes/robustness.py [--only NAME]... [--binary FILE] [--logs FOLDER] [--keep]
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import network
from api import ApiError
from cluster import BIN, ROOT, ClusterError
from fixture import ClusterFixture, suite_images, wait_for
from load import LoadConnection, LoadTarget, SteadyLoad, responds
from run import NAMESPACE, Yumen, check_programs
from scene import (GATEWAYS, HOST, LEASE, ROUTES, SHOP, SYSTEM, RobustnessScene, api_fails, check, gateway, listener, named,
                   route)

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/yumen"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TCP_ROUTES = "tcproutes.gateway.networking.k8s.io"
TCP_ROUTES_FILE = BIN / "crds/experimental/gateway.networking.k8s.io_tcproutes.yaml"
# Time from a start without an API server to the first response, by `kubernetes.start_wait_ms` (5 s) and the start itself.
BRIDGE_SECONDS = 9
# A lease lasts 15 s; the next leader looks every 2 s.
LEADER_SECONDS = 20
# `status_writer.rs` begins a write of a status at most every 500 ms. A write that conflicts is repeated at once, which delays its
# success and not the next write.
WRITE_SECONDS = 0.5
# `watch_machine.rs` looks for the API server every 5 to 6 s; the Service of a Gateway and its address need a turn each.
RETURN_SECONDS = 20
CHURN_SECONDS = 6
# End of the message of a failed check.
MESSAGE_CHARACTERS = 1000


def check_all_answered(load: SteadyLoad) -> None:
    result = load.result
    check(result.statuses.total() > 0, "the load sent nothing")
    check(not result.failures, f"{len(result.failures)} of {result} failed: {result.failures[:5]}")


def check_rights(scene: RobustnessScene) -> None:
    """The manifest's rights suffice; without `get` on Secrets a problem names the rule and HTTP routes work."""
    check("forbidden" not in scene.problems().lower(), f"a right is missing: {scene.problems()}")
    rules = scene.client.get(ROLE)["rules"]
    weaker = [rule for rule in rules if "secrets" not in rule["resources"]]
    weaker.append({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]})
    weaker.append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]})
    scene.client.patch(ROLE, {"rules": weaker})
    try:
        scene.world.cluster.kubectl("rollout", "restart", "deployment/yumen", "-n", SYSTEM)
        scene.world.wait_rollout(SYSTEM, "yumen", 120)
        wait_for("the problem", lambda: "secrets" in scene.problems(), 20)
        problems = scene.problems()
        check("get" in problems, f"the problem names no rule: {problems}")
        wait_for("HTTP", lambda: responds(scene.http()), 20)
        # The former replicas serve until they have lingered.
        wait_for("the end of HTTPS without the certificate", lambda: not responds(scene.https()), 40)
    finally:
        scene.client.patch(ROLE, {"rules": rules})
    wait_for("HTTPS once the right is back", lambda: responds(scene.https()), 60)
    wait_for("no problem", lambda: "secrets" not in scene.problems(), 60)


def check_scaling(scene: RobustnessScene) -> None:
    """No request fails while backends scale 5 to 7 to 5 and three of them are killed."""
    with SteadyLoad(scene.https()) as load:
        for replicas in (7, 5):
            scene.scale(SHOP, "echo", replicas)
        for _ in range(3):
            pods = scene.client.get(f"/api/v1/namespaces/{SHOP}/pods?labelSelector=app%3Decho")["items"]
            pods = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
            scene.kill(pods[0]["status"]["podIP"])
            time.sleep(1)
            scene.world.wait_rollout(SHOP, "echo")
    scene.note(f"scaling and kills: {load.result}")
    check_all_answered(load)


def check_route_changes(scene: RobustnessScene) -> None:
    """Twenty changes of routes disturb no connection, and new routes answer soon after their write."""
    scene.apply(gateway("bare", listener("http", "HTTP", 80)))
    target = LoadTarget(scene.address("bare"), 80, HOST)
    with SteadyLoad(scene.https()) as load:
        for number in range(20):
            scene.apply(route("turns", f"/turn-{number}"))
            if number % 4 == 3:
                scene.client.delete(f"{ROUTES}/turns")
    check_all_answered(load)
    scene.apply(route("first", "/first", parent="bare"))
    wait_for("the first route", lambda: responds(target, "/first"), 30)
    connection, times = LoadConnection(target), []
    for number in range(100):
        scene.client.create(ROUTES, route(f"fresh-{number}", f"/fresh-{number}", parent="bare"))
        begin = time.monotonic()
        while connection.request(f"/fresh-{number}")[0] != 200:
            check(time.monotonic() - begin < 10, f"route {number} is not served")
            time.sleep(0.001)
        times.append((time.monotonic() - begin) * 1000)
    connection.close()
    for number in range(100):
        scene.client.delete(f"{ROUTES}/fresh-{number}")
    times.sort()
    scene.note(f"route write to served: p50 {times[49]:.0f} ms, p99 {times[98]:.0f} ms; under changes: {load.result}")
    wait_for("the end of deleted routes", lambda: responds(LoadTarget(target.address, 80, HOST, status=404), "/fresh-0"), 10)
    check(times[98] < 2000, f"p99 of {times[98]:.0f} ms")


def check_owned_objects(scene: RobustnessScene) -> None:
    """A Service or EndpointSlice of a Gateway that somebody deletes is written again."""
    scene.apply(gateway("bare", listener("http", "HTTP", 80)), route("bare", "/bare", parent="bare"))
    scene.address("bare")
    for path in (f"/api/v1/namespaces/{SHOP}/services/yumen-bare",
                 f"/apis/discovery.k8s.io/v1/namespaces/{SHOP}/endpointslices/yumen-bare-ipv4"):
        wait_for(path, lambda: scene.client.find(path) is not None, 20)
        before = scene.client.get(path)["metadata"]["uid"]
        scene.client.delete(path)
        wait_for(f"another {path}", lambda: (scene.client.find(path) or {"metadata": {"uid": before}})["metadata"]["uid"] != before, 20)
    target = LoadTarget(scene.address("bare"), 80, HOST)
    wait_for("a response", lambda: responds(target, "/bare"), 30)


def check_api_outage(scene: RobustnessScene) -> None:
    """Without the API server traffic continues, restarts serve the last good state, and later changes arrive."""
    scene.scale_yumen(1)
    pod = scene.pods()[0]
    address, cluster = pod["status"]["podIP"], scene.world.cluster
    target = scene.https()
    with SteadyLoad(target) as load:
        cluster.stop_api_server()
        check(api_fails(scene), "the API server is still there")
        time.sleep(8)
    check_all_answered(load)
    try:
        wait_for("a problem", lambda: "kubernetes" in scene.status(address, "/yumen/v1/problems")[1], 20)
        begin = time.monotonic()
        scene.kill(address)
        wait_for("the restarted process to be gone", lambda: not responds(target), 5)
        wait_for("the last good state", lambda: responds(target), BRIDGE_SECONDS)
        scene.note(f"kill without API server to served: {time.monotonic() - begin:.1f} s")
        check("unreachable" in scene.status(address, "/yumen/v1/problems")[1], "no problem about the API server")
        check('"last_good"' in scene.status(address, "/status")[1], "/status does not name the origin")
        states = list(scene.data_folder(pod).glob("last-good*"))
        check(states, "no last good state was kept")
        for state in states:
            state.unlink()
        scene.kill(address)
        wait_for("the status listener", lambda: reaches(scene, address), 30)
        time.sleep(2)
        check(not scene.is_ready(address), "ready without any configuration")
    finally:
        cluster.resume_api_server()
    begin = time.monotonic()
    wait_for("readiness after the return", lambda: scene.is_ready(address), 40)
    wait_for("traffic after the return", lambda: responds(target), 20)
    scene.note(f"API server back to ready: {time.monotonic() - begin:.1f} s")
    scene.apply(route("later", "/later"))
    wait_for("status of a change after the return", lambda: is_accepted(scene, "later"), LEADER_SECONDS + 10)
    check_outage_ends(scene, target)
    scene.scale_yumen(2)


def check_outage_ends(scene: RobustnessScene, target: LoadTarget) -> None:
    """After an outage without restart, changes arrive and the problems go."""
    cluster = scene.world.cluster
    with SteadyLoad(target) as load:
        cluster.stop_api_server()
        time.sleep(3)
        cluster.resume_api_server()
        begin = time.monotonic()
        scene.apply(gateway("late", listener("http", "HTTP", 80)), route("late", "/", parent="late"))
        late = LoadTarget(scene.address("late"), 80, HOST)
        wait_for("a Gateway after the outage", lambda: responds(late), RETURN_SECONDS)
        scene.note(f"outage of 3 s: a new Gateway served {time.monotonic() - begin:.1f} s after it")
    check_all_answered(load)
    wait_for("the end of the problems", lambda: "kubernetes" not in scene.problems(), 90)


def reaches(scene: RobustnessScene, address: str) -> bool:
    try:
        return scene.status(address, "/status")[0] == 200
    except OSError:
        return False


def is_accepted(scene: RobustnessScene, name: str) -> bool:
    return scene.condition(f"{ROUTES}/{name}", "Accepted").get("status") == "True"


def check_definitions(scene: RobustnessScene) -> None:
    """A kind whose definition comes later is served; one that vanishes for some seconds keeps its routes."""
    cluster = scene.world.cluster
    if scene.client.find(f"{DEFINITIONS}/{TCP_ROUTES}") is not None:
        scene.client.delete(f"{DEFINITIONS}/{TCP_ROUTES}")
        wait_for("the deletion", lambda: scene.client.find(f"{DEFINITIONS}/{TCP_ROUTES}") is None, 30)
        for address in scene.pod_addresses():
            scene.kill(address)
        wait_for("Yumen without the kind", lambda: all(map(scene.is_ready, scene.pod_addresses())), 60)
    begin = time.monotonic()
    cluster.apply(TCP_ROUTES_FILE)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", TCP_ROUTES)
    version = scene.client.get(f"{DEFINITIONS}/{TCP_ROUTES}")["spec"]["versions"][0]["name"]
    tcp = route("stream", "", parent="stream", kind="TCPRoute") | {"apiVersion": f"gateway.networking.k8s.io/{version}"}
    scene.apply(gateway("stream", listener("tcp", "TCP", 9000)), tcp)
    target = LoadTarget(scene.address("stream"), 9000, HOST)
    port = target_port(scene, "stream", 9000)
    replicas = [LoadTarget(address, port, HOST) for address in scene.pod_addresses()]
    wait_for("a TCPRoute", lambda: responds(target) and all(map(responds, replicas)), 60)
    scene.note(f"definition installed to TCPRoute served by all replicas: {time.monotonic() - begin:.1f} s")
    versions = scene.client.get(f"{DEFINITIONS}/{TCP_ROUTES}")["spec"]["versions"]
    path = f"/apis/gateway.networking.k8s.io/{version}/namespaces/{SHOP}/tcproutes"
    with SteadyLoad(target, rate=50, clients=5) as load:
        scene.client.patch(f"{DEFINITIONS}/{TCP_ROUTES}", {"spec": {"versions": [one | {"served": False} for one in versions]}})
        wait_for("the kind to vanish", lambda: not is_served(scene, path), 30)
        time.sleep(10)
        scene.client.patch(f"{DEFINITIONS}/{TCP_ROUTES}", {"spec": {"versions": versions}})
        wait_for("the kind to return", lambda: is_served(scene, path), 30)
        time.sleep(3)
    check_all_answered(load)


def is_served(scene: RobustnessScene, path: str) -> bool:
    """Whether the API server lists a kind; its storage is not ready for some moments after a change."""
    try:
        return scene.client.find(path) is not None
    except ApiError:
        return False


def check_lease(scene: RobustnessScene) -> None:
    """If the leader is killed, the other replica writes statuses within 20 s; both serve, and only leaders write."""
    wait_for("a leader", lambda: scene.leader() in [pod["metadata"]["name"] for pod in scene.pods()], 40)
    leader = scene.leader()
    other = next(pod for pod in scene.pods() if pod["metadata"]["name"] != leader)
    held = next(pod for pod in scene.pods() if pod["metadata"]["name"] == leader)
    before = len(scene.status_writes())
    # The pod's own address: a connection to a replica that was just killed would fail, whatever gateway it is.
    target = LoadTarget(other["status"]["podIP"], target_port(scene), HOST)
    with SteadyLoad(target) as load, stopped(scene, held["status"]["podIP"]):
        begin = time.monotonic()
        scene.apply(route("orphan", "/orphan"))
        wait_for("the status by the other replica", lambda: is_accepted(scene, "orphan"), LEADER_SECONDS)
        scene.note(f"leader gone to status written by the other: {time.monotonic() - begin:.1f} s")
    check_all_answered(load)
    check(scene.leader() == other["metadata"]["name"], "the lease has another holder")
    writers = [pod for pod, *_ in scene.status_writes()[before:]]
    check(other["metadata"]["name"] in writers, "the other replica wrote nothing")
    time.sleep(5)
    # The former leader runs again since the block ended: it must have noticed.
    late = len(scene.status_writes())
    scene.apply(route("orphan", "/orphan-2"))
    wait_for("the next status", lambda: is_current(scene, "orphan"), 10)
    writers = [pod for pod, *_ in scene.status_writes()[late:]]
    check(set(writers) == {other["metadata"]["name"]}, f"statuses were written by {set(writers)}")


@contextmanager
def stopped(scene: RobustnessScene, address: str) -> Iterator[None]:
    """A pod whose processes are frozen, as on a node that hangs: worse than a kill, because it goes on later."""
    pids = scene.processes(address)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def target_port(scene: RobustnessScene, name: str = "shop", port: int = 80) -> int:
    service = scene.client.get(f"/api/v1/namespaces/{SHOP}/services/yumen-{name}")
    return next(one["targetPort"] for one in service["spec"]["ports"] if one["port"] == port)


def is_current(scene: RobustnessScene, name: str) -> bool:
    generation = scene.client.get(f"{ROUTES}/{name}")["metadata"]["generation"]
    return scene.condition(f"{ROUTES}/{name}", "Accepted").get("observedGeneration") == generation


def check_status_rate(scene: RobustnessScene) -> None:
    """Under constant changes each object gets at most one status write per 500 ms, by the leader, and the last one counts."""
    names = [f"churn-{number}" for number in range(5)]
    scene.apply(*(route(name, f"/{name}") for name in names))
    wait_for("their statuses", lambda: all(is_accepted(scene, name) for name in names), 30)
    time.sleep(1)
    begin, before = time.monotonic(), len(scene.status_writes())
    changes = 0
    while time.monotonic() - begin < CHURN_SECONDS:
        for name in names:
            path = [{"path": {"type": "PathPrefix", "value": f"/{name}-{changes}"}}]
            scene.client.patch(f"{ROUTES}/{name}", {"spec": {"rules": [
                {"matches": path, "backendRefs": [{"name": "echo", "port": 80}]}]}})
            changes += 1
    wait_for("the newest generation in all statuses", lambda: all(is_current(scene, name) for name in names), 10)
    writes = scene.status_writes()[before:]
    check(len({pod for pod, *_ in writes}) == 1, f"several replicas wrote: {writes[-6:]}")
    times: dict[str, list[float]] = {}
    for _, name, moment, code in writes:
        if code == 200:
            times.setdefault(name, []).append(moment)
    gaps = [later - earlier for moments in times.values() for earlier, later in zip(moments, moments[1:])]
    shortest = min(gaps, default=1.0)
    scene.note(f"churn: {changes} changes, {len(writes)} status writes, shortest gap of one object {shortest * 1000:.0f} ms")
    most = max(map(len, times.values()))
    allowed = (time.monotonic() - begin) / WRITE_SECONDS + 2
    check(most <= allowed, f"{most} writes of one object, more than {allowed:.0f}")
    check(shortest >= WRITE_SECONDS / 2, f"two writes of one object within {shortest * 1000:.0f} ms")


def check_rollout(scene: RobustnessScene) -> None:
    """No request fails while both replicas are replaced, and a pod that ends is not ready at once."""
    ending = scene.pods()[0]["status"]["podIP"]
    unready: list[float] = []

    def watch() -> None:
        begin = time.monotonic()
        while time.monotonic() - begin < 90:
            try:
                code, text = scene.status(ending, "/status/ready")
            except OSError:
                return
            if code == 503 and "about to shut down" in text:
                unready.append(time.monotonic())
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    with SteadyLoad(scene.https()) as load:
        watcher.start()
        scene.world.cluster.kubectl("rollout", "restart", "deployment/yumen", "-n", SYSTEM)
        scene.world.wait_rollout(SYSTEM, "yumen", 180)
        path = f"/api/v1/namespaces/{SYSTEM}/pods"
        wait_for("the end of the old replicas", lambda: len(scene.client.get(path)["items"]) == 2, 90)
        time.sleep(2)
    watcher.join()
    scene.note(f"roll-out: {load.result}")
    check_all_answered(load)
    check(len(unready) > 1, "the pod that ended was never not ready")
    scene.note(f"roll-out: the first pod was reachable and not ready for {unready[-1] - unready[0]:.1f} s")


def check_taken_port(scene: RobustnessScene) -> None:
    """A port that cannot be bound is a condition and a problem with its reason, and heals."""
    used = [one["targetPort"] for service in scene.client.get(f"/api/v1/namespaces/{SHOP}/services")["items"]
            for one in service["spec"]["ports"] if service["metadata"]["name"].startswith("yumen-")]
    free = [port for port in range(20000, 20100) if port not in used][:4]
    holders = [network.listen_within(scene.namespace(address), "0.0.0.0", port)
               for address in scene.pod_addresses() for port in free if port not in bound(scene, address)]
    try:
        scene.apply(gateway("taken", listener("http", "HTTP", 80)), route("taken", "/", parent="taken"))
        path = f"{GATEWAYS}/taken"
        wait_for("the condition", lambda: scene.condition(path, "Programmed", "http").get("status") == "False"
                 and "in use" in scene.condition(path, "Programmed", "http").get("message", "").lower(), 20)
        problems = scene.problems()
        check("in use" in problems.lower(), f"no problem names the reason: {problems}")
    finally:
        for holder in holders:
            holder.close()
    begin = time.monotonic()
    wait_for("the listener", lambda: scene.condition(path, "Programmed", "http").get("status") == "True", 60)
    wait_for("a response", lambda: responds(LoadTarget(scene.address("taken"), 80, HOST)), 40)
    scene.note(f"port free to Programmed: {time.monotonic() - begin:.1f} s")
    wait_for("the end of the problem", lambda: "in use" not in scene.problems().lower(), 40)


def bound(scene: RobustnessScene, address: str) -> set[int]:
    """Ports that Yumen still holds in a pod, such as those of a Gateway that was deleted a moment ago."""
    text = Path(f"/proc/{scene.processes(address)[0]}/net/tcp6").read_text() + Path(
        f"/proc/{scene.processes(address)[0]}/net/tcp").read_text()
    fields = [line.split() for line in text.splitlines() if line.strip() and line.split()[0] != "sl"]
    return {int(one[1].split(":")[1], 16) for one in fields if one[3] == "0A"}


def check_upgrade(scene: RobustnessScene, binary: Path) -> None:
    """An upgrade of a process keeps the listeners of all Gateways; no request fails."""
    scene.scale_yumen(0)
    yumen = Yumen(scene.world, binary, 1, outside=True)
    target = scene.https()
    try:
        yumen.start()
        wait_for("the process outside", lambda: responds(target) and responds(scene.http()), 30)
        wait_for("its lease", lambda: scene.leader() != "", LEADER_SECONDS)
        with SteadyLoad(target) as load:
            data = scene.world.folder / "outside"
            run = subprocess.run([binary, "upgrade", "--data-dir", data], capture_output=True, text=True, timeout=90)
            check(run.returncode == 0, f"yumen upgrade: {run.stdout}{run.stderr}")
            time.sleep(3)
        scene.note(f"upgrade: {load.result}")
        check_all_answered(load)
        scene.apply(route("upgraded", "/upgraded"), gateway("upgraded", listener("http", "HTTP", 80)),
                    route("upgraded-2", "/", parent="upgraded"))
        wait_for("a status by the successor", lambda: is_accepted(scene, "upgraded"), LEADER_SECONDS)
        upgraded = LoadTarget(scene.address("upgraded"), 80, HOST)
        wait_for("a Gateway of the successor", lambda: responds(upgraded), 30)
        check(responds(scene.http()), "HTTP is gone")
    finally:
        yumen.stop()
        end_successor(scene)
        scene.client.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/yumen-outside?gracePeriodSeconds=0")
    scene.scale_yumen(2)


def end_successor(scene: RobustnessScene) -> None:
    """Ends the processes of this run's outside data directory, which an upgrade starts apart from this program."""
    data = str(scene.world.folder / "outside").encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if data in (folder / "cmdline").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:
            continue


CHECKS: list[Callable[..., None]] = [check_rights, check_scaling, check_route_changes, check_owned_objects,
                                     check_definitions, check_lease, check_status_rate,
                                     check_taken_port, check_rollout, check_api_outage, check_upgrade]


def run_checks(scene: RobustnessScene, chosen: list[Callable[..., None]], binary: Path) -> int:
    """Runs every check, whatever the others do; the number of failures."""
    failed = 0
    for one in chosen:
        begin = time.monotonic()
        name = one.__name__.removeprefix("check_")
        try:
            if one is check_upgrade:
                one(scene, binary)
            else:
                one(scene)
            outcome = "ok"
        except (ClusterError, ApiError, OSError, subprocess.SubprocessError) as error:
            failed += 1
            outcome = f"FAILED: {str(error)[:MESSAGE_CHARACTERS]}"
        print(f"{time.monotonic() - begin:6.1f} s  {name}: {outcome}", flush=True)
        for text in scene.notes:
            print(f"          {text}", flush=True)
        scene.notes.clear()
    return failed


def robust(args: argparse.Namespace, chosen: list[Callable[..., None]]) -> int:
    folder: Path = args.logs
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = time.monotonic()
    with ClusterFixture(folder, suite_images() | {"yumen": args.binary}, is_audited=True) as world:
        scene = RobustnessScene(world)
        scene.start()
        print(f"ready after {time.monotonic() - begin:.1f} s; logs are in {folder}", flush=True)
        failed = run_checks(scene, chosen, args.binary)
        if args.keep:
            print(f"the cluster stays until ^C: export KUBECONFIG={world.cluster.kubeconfig} PATH=$PATH:{BIN}", flush=True)
            signal.pause()
    print(f"{time.monotonic() - begin:.0f} s, {failed} of {len(chosen)} checks failed")
    return 1 if failed else 0


def main() -> int:
    names = [one.__name__.removeprefix("check_") for one in CHECKS]
    parser = argparse.ArgumentParser(description="Tests of Yumen in a cluster that changes.")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"run this check: {', '.join(names)}")
    parser.add_argument("--binary", type=Path, default=Path(os.environ.get("BINARY", ROOT / "target/release/yumen")),
                        help="Yumen's binary")
    parser.add_argument("--logs", type=Path, default=ROOT / "target/robustness-kubernetes",
                        help="folder of logs, replaced by each run")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up after the checks, until ^C")
    args = parser.parse_args()
    args.binary, args.logs = args.binary.resolve(), args.logs.resolve()
    chosen = [one for one in CHECKS if not args.only or one.__name__.removeprefix("check_") in args.only]
    try:
        check_programs(args.binary)
        return robust(args, chosen)
    except ClusterError as error:
        print(f"robustness: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

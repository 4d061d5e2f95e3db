#!/usr/bin/env python3
"""Report R2 in a cluster: latency and failures of Ingress controllers at a constant rate while replicas come and go.

A control plane without containers (conformance/kubernetes/cluster.py) runs a shop of five replicas. Gateways take turns in random order; each
is started for its round and gets HTTPS requests over kept connections, due at a constant rate. Scenarios:
  static     five replicas
  dynamic    five, seven and five again, every 10 to 12 s; a replica drains before it ends
  killed     the same, and replicas end by SIGKILL, unannounced
  unchanged  1 000 more Ingresses, for comparison with
  churn      1 000 of them change in each second
The record is target/lab-kubernetes/kubernetes.json, its report kubernetes.html and kubernetes.md beside it. `--ready 5000` measures the time
from the start of a gateway until so many Ingresses are served instead. Needs root.
Usage: bench/lab_kubernetes/run.py [--seconds 180] [--rounds 1] [--rate 4000] [--connections 1000] [--systems yumen,traefik]
       [--scenarios static,dynamic] [--ready N]
"""

import argparse
import os
import random
import resource
import shlex
import shutil
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[1:1] = [str(ROOT / "conformance/kubernetes"), str(ROOT / "bench")]

from cluster import ClusterError  # noqa: E402
from fixture import ClusterFixture  # noqa: E402
from measure import LabCase, LabRound  # noqa: E402
from ready import measure_ready  # noqa: E402
from record import RunRecorder  # noqa: E402
from systems import SYSTEMS, LabSystem  # noqa: E402
from world import ShopWorld  # noqa: E402

REPLICAS = (5, 7)
CASES = [
    LabCase("static", "static", (5, 5)),
    LabCase("dynamic", "dynamic, drained", REPLICAS),
    LabCase("killed", "dynamic, killed", REPLICAS, is_killed=True),
    LabCase("unchanged", "1 000 Ingresses, unchanged", (5, 5), many=1000),
    LabCase("churn", "1 000 Ingresses, changed 1 000 times per second", (5, 5), many=1000, changes_per_second=1000),
]
OPEN_FILES = 65536


def order(cases: list[LabCase], systems: list[LabSystem], rounds: int, seed: int) -> list[tuple[LabCase, LabSystem]]:
    """All pairs once per round, each round in another order. The floor has no cluster, so one scenario suffices."""
    source, found = random.Random(seed), []
    for _ in range(rounds):
        pairs = [(case, system) for case in cases for system in systems if system.name != "direct" or case.name == "static"]
        source.shuffle(pairs)
        found += pairs
    return found


def run_rounds(world: ShopWorld, recorder: RunRecorder, pairs: list[tuple[LabCase, LabSystem]], options) -> int:
    """Runs all rounds, whatever happens to one; the number of those that failed."""
    failed = 0
    for number, (case, system) in enumerate(pairs):
        begin = time.monotonic()
        one = LabRound(world, system, case, options, options.out / "rounds" / f"{number}-{system.name}-{case.name}")
        try:
            result = one.run()
        except (ClusterError, OSError, RuntimeError, ValueError) as error:
            failed += 1
            recorder.fail(case, system, str(error))
            print(f"{system.name:<14} {case.name:<10} FAILED: {error}", flush=True)
            continue
        recorder.add(case, system, result)
        print(f"{system.name:<14} {case.name:<10} {shown(result.summary)}   ({time.monotonic() - begin:.0f} s)", flush=True)
    return failed


def shown(summary) -> str:
    points = {round(entry["percentile"], 4): entry["ns"] for entry in summary["latency_corrected"]["percentiles"]}
    wanted = ((50.0, "p50"), (99.0, "p99"), (99.9, "p99.9"), (99.99, "p99.99"))
    text = "   ".join(f"{name} {points[at] / 1e6:.2f} ms" for at, name in wanted if at in points)
    errors = {kind: count for kind, count in summary["errors"].items() if kind != "examples" and count}
    return f"{text}   {summary['responses']} responses, {errors or 'no failures'}"


def p9999_ms(recorder: RunRecorder, case: str, system: str) -> float | None:
    """The median over the rounds of the latency at p99.99."""
    rounds = recorder.rounds.get((case, system))
    if not rounds:
        return None
    found = [entry["ns"] / 1e6 for one in rounds for entry in one["summary"]["latency_corrected"]["percentiles"]
             if abs(entry["percentile"] - 99.99) < 1e-6]
    return statistics.median(found)


def print_targets(recorder: RunRecorder) -> None:
    """Compares the scenarios of each gateway, as docs/lab/kubernetes.md asks."""
    for system in recorder.systems:
        for case, base in (("dynamic", "static"), ("killed", "static"), ("churn", "unchanged")):
            found, expected = p9999_ms(recorder, case, system.name), p9999_ms(recorder, base, system.name)
            if found is not None and expected:
                failures = sum(one["summary"]["errors"][kind] for one in recorder.rounds[case, system.name]
                               for kind in one["summary"]["errors"] if kind != "examples")
                print(f"{system.name:<14} {case:<10} p99.99 {found:.2f} ms, {found / expected:.2f} of `{base}`; {failures} failures")


def available(recorder: RunRecorder, systems: list[LabSystem]) -> list[LabSystem]:
    found = []
    for system in systems:
        reason = system.missing()
        if reason:
            recorder.skip(system, reason)
            print(f"{system.name}: {reason}; {system.hint()}", flush=True)
        else:
            found.append(system)
    return found


def measure(options, command: str) -> int:
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    cases = [case for case in CASES if case.name in options.scenarios]
    chosen = [SYSTEMS[name](options) for name in options.systems]
    recorder = RunRecorder(options, cases, chosen, options.seed, command)
    systems = available(recorder, chosen)
    pairs = order(cases, systems, options.rounds, options.seed)
    os.setpriority(os.PRIO_PROCESS, 0, options.nice)
    with ClusterFixture(options.out / "world", {"upstream": options.bench}, "standard") as fixture:
        os.sched_setaffinity(0, options.all_cores)
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        world = ShopWorld(fixture, options.drain)
        world.start(REPLICAS[0], {system.name: system.controller for system in systems if system.controller})
        for system in systems:
            system.prepare(world)
        if options.ready:
            return measure_ready(world, systems, options)
        failed = run_rounds(world, recorder, pairs, options)
    print_targets(recorder)
    recorder.write(options.out)
    print(f"report: {options.out}/kubernetes.html", flush=True)
    return 1 if failed else 0


def cores(options) -> None:
    """Half of the processors, at most, are the gateway's; the others carry everything else."""
    found = sorted(os.sched_getaffinity(0))
    if len(found) < 2:
        raise ClusterError("two processors are needed")
    count = options.workers or len(found) // 2
    options.all_cores, options.gateway_cores, options.other_cores = found, found[:count], found[count:]
    # The cluster and everything that it starts.
    os.sched_setaffinity(0, options.other_cores)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [case.name for case in CASES]
    parser.add_argument("--seconds", type=int, default=180, help="duration of a round [default: 180, as in the report]")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rate", type=int, default=4000, help="requests per second over all connections")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--stay", type=float, nargs=2, default=None, metavar="SECONDS",
                        help="seconds with five and with seven replicas [default: 12 10, less in short rounds]")
    parser.add_argument("--drain", type=int, default=5, help="seconds of the preStop hook of a replica")
    parser.add_argument("--workers", type=int, default=0, help="processors of the gateway [default: half]")
    parser.add_argument("--nice", type=int, default=10, help="nice value of the cluster, whose work must not delay the load")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--scenarios", default=",".join(names))
    parser.add_argument("--ready", type=int, default=0, metavar="N", help="measure the start with N Ingresses instead")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--yumen", type=Path, default=Path(os.environ.get("YUMEN", ROOT / "target/dist/yumen")))
    parser.add_argument("--bench", type=Path, default=ROOT / "target/dist/yumen-bench", help="yumen-bench")
    parser.add_argument("--out", type=Path, default=ROOT / "target/lab-kubernetes", help="folder, replaced by each run")
    options = parser.parse_args()
    command = "make lab-kubernetes" + (f' ARGS="{shlex.join(sys.argv[1:])}"' if sys.argv[1:] else "")
    options.systems, options.scenarios = options.systems.split(","), options.scenarios.split(",")
    for given, known in ((options.systems, list(SYSTEMS)), (options.scenarios, names)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    options.stay = tuple(options.stay or (min(12.0, options.seconds / 4), min(10.0, options.seconds / 5)))
    options.yumen, options.bench, options.out = options.yumen.resolve(), options.bench.resolve(), options.out.resolve()
    soft = min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        cores(options)
        return measure(options, command)
    except ClusterError as error:
        print(f"lab-kubernetes: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

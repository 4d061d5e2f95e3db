"""The record of a run, in the format that `yumen-bench report` reads (crates/yumen-lab/src/record.rs)."""

import json
import os
import platform
import subprocess
import time
from pathlib import Path

from api import KubeObject
from measure import LabCase, RoundResult
from systems import ABSENT, LabSystem, first_line

FORMAT = 1
BUSY_SHARE = 0.9
STOLEN_SHARE = 0.05
ANSWERED_SHARE = 0.98
ABOUT = (
    "Report R2 held 30 000 HTTPS requests per second on 1000 connections for three minutes (wrk2, RSA-2048, 1 KB) against the Ingress of a "
    "cluster: first with five replicas, then from five to seven and back every ten to twelve seconds.",
    "Here the cluster is kube-apiserver, kube-controller-manager and etcd, without containers: a stand-in for the kubelet runs each replica as "
    "a process in a network namespace of its own. The gateways are processes of the machine, as in a DaemonSet with host network. A drained "
    "replica serves for the time of its preStop hook after it left the EndpointSlice; a killed one gets SIGKILL before anything is announced.",
    "In the scenario with changes of Ingresses, a relay before the API server adds the events to the watch, because the API server itself "
    "cannot take that many writes beside a load on the same processors.")
TRAPS = (
    ("closed loop", "A generator that waits for responses stops sending while the gateway reloads, and records one slow request where a "
     "thousand would have waited.", "Requests are due at a constant rate. Latency counts from the moment a request was due."),
    ("order of the replicas' end", "A replica that ends before the EndpointSlice says so measures the retries of the gateway, one that "
     "drains measures its updates.", "Both are scenarios of their own."),
    ("neighbours", "Pods that start on the processors of the gateway delay it.", "Gateway and everything else have different processors; "
     "the generator precedes the cluster on them."),
)


def machine(gateway_cores: list[int], other_cores: list[int]) -> KubeObject:
    text = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "unknown")
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return {"cpu": model, "cpus": len(os.sched_getaffinity(0)), "hyper_threads": None, "memory_bytes": memory,
            "kernel": f"Linux {platform.release()}", "os": release.get("PRETTY_NAME", "").strip('"'), "governor": None,
            "hypervisor": None, "pinning": {"gateway": gateway_cores, "upstream": other_cores, "generator": other_cores}}


def bottleneck(result: RoundResult, rate: float, seconds: float) -> KubeObject:
    """The part that bounded a round, by the rules of docs/lab/scenarios.md."""
    usage, summary = result.usage, result.summary
    share = {name: usage[name]["cpu_ns"] / max(1, summary["elapsed_ns"] * usage[name]["cpus"])
             for name in ("gateway", "upstream", "generator")}
    answered = summary["responses"] / max(1.0, rate * seconds)
    why = ", ".join(f"{name} {value * 100:.0f} % of its processors" for name, value in share.items())
    if usage["stolen"] >= STOLEN_SHARE:
        who, why = "machine", f"{usage['stolen'] * 100:.0f} % of the time stolen"
    elif share["gateway"] >= BUSY_SHARE:
        who = "gateway"
    elif share["upstream"] + share["generator"] >= BUSY_SHARE:
        who = "generator"
    elif answered >= ANSWERED_SHARE:
        who = "load"
    else:
        who = "unknown"
    return {"who": who, "why": why}


class RunRecorder:
    """Gathers rounds; `write` renders the record."""

    def __init__(self, options, cases: list[LabCase], systems: list[LabSystem], seed: int, command: str):
        self.options, self.cases, self.systems, self.seed, self.command = options, cases, systems, seed, command
        self.begin = time.time()
        self.rounds: dict[tuple[str, str], list[KubeObject]] = {}
        self.failed: dict[tuple[str, str], str] = {}
        self.targets: dict[str, KubeObject] = {}
        self.skipped = [{"name": name, "reason": reason, "hint": "none"} for name, reason in ABSENT.items()]
        self.position = 0

    def skip(self, system: LabSystem, reason: str) -> None:
        self.skipped.append({"name": system.name, "reason": reason, "hint": system.hint()})

    def add(self, case: LabCase, system: LabSystem, result: RoundResult) -> None:
        self.position += 1
        rounds = self.rounds.setdefault((case.name, system.name), [])
        rounds.append({
            "number": len(rounds) + 1, "position": self.position,
            "at_ms": max(0, result.summary["started_unix_ms"] - round(self.begin * 1000)), "summary": result.summary,
            "usage": result.usage, "bottleneck": bottleneck(result, self.options.rate, self.options.seconds),
            "connections": None, "changes": result.marks})
        self.targets.setdefault(system.name, self._target(system))

    def fail(self, case: LabCase, system: LabSystem, reason: str) -> None:
        self.failed[case.name, system.name] = reason
        self.targets.setdefault(system.name, self._target(system))

    def _target(self, system: LabSystem) -> KubeObject:
        is_floor = system.name == "direct"
        # Ports, folders and credentials of a run say nothing about another.
        command = [word for word in system.command if "token" not in word]
        return {"name": system.name, "adapter": system.adapter, "role": "baseline" if is_floor else "gateway",
                "version": system.version(), "program": system.program().name, "configuration": system.files,
                "command": [Path(word).name if word.startswith("/") else word for word in command],
                "changes_by": system.changes_by or None, "notes": list(system.notes)}

    def record(self) -> KubeObject:
        options, began = self.options, time.gmtime(self.begin)
        names = [system.name for system in self.systems if system.name in self.targets]
        return {
            "format": FORMAT, "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", began),
            "took_ms": round((time.time() - self.begin) * 1000), "command": self.command, "seed": self.seed,
            "scale": "full" if options.seconds >= 180 else "quick" if options.seconds < 60 else "normal",
            "lab_version": (first_line([options.bench, "--version"]) or "").rpartition(" ")[2],
            "machine": machine(options.gateway_cores, options.other_cores), "doctor": [],
            "scenario": {
                "name": "kubernetes", "title": "Latency at a constant rate while replicas of a cluster come and go", "report": "R2",
                "about": list(ABOUT), "traps": [{"name": name, "what": what, "answer": answer} for name, what, answer in TRAPS],
                "views": [{"kind": kind} for kind in ("failures", "percentiles", "timeline", "table")],
                "seconds": float(options.seconds), "rounds": options.rounds, "fail_if": ["yumen:errors>0"], "source": ""},
            "ceilings": [], "targets": [self.targets[name] for name in names], "skipped": self.skipped,
            "cases": [self._case(case, names) for case in self.cases]}

    def _case(self, case: LabCase, names: list[str]) -> KubeObject:
        results = [{"target": name, "rounds": self.rounds.get((case.name, name), []), "missing": self.failed.get((case.name, name))}
                   for name in names]
        return {"id": case.name, "label": case.label, "parameters": {"scenario": case.name}, "results": results}

    def write(self, folder: Path) -> None:
        """Writes the record, and the report as page and as tables."""
        path = folder / "kubernetes.json"
        path.write_text(json.dumps(self.record(), indent=1) + "\n")
        for ending in ("html", "md"):
            subprocess.run([str(self.options.bench), "report", str(path), "--out", str(folder / f"kubernetes.{ending}")], check=True)

#!/usr/bin/env python3
"""Runs plugins against the real servers that they speak to: log servers, collectors, brokers, identity and secret servers.

Each module of this folder with `run` is a counterpart. `scripts/deps.sh counterparts` installs the servers.
Usage: conformance/counterparts/run.py [--binary FILE] [--only NAME]... [--list] [--short] [--logs FOLDER]
"""

import argparse
import importlib
import os
import re
import shutil
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

from scene import Missing, Scene  # noqa: E402 (needs the path)

# Servers of plugins that no package registry has, so that only stubs in unit tests check their wire form.
NOT_SERVED = {
    "Splunk": "not in a registry, and the splunkhec receiver of the collector is not served by the Go module proxy",
    "SkyWalking OAP": "not in Maven Central, and the skywalking receiver of the collector is not served by the Go module proxy",
    "Zipkin server": "io.zipkin:zipkin-server is not in Maven Central as a program; the zipkin receiver of the collector stands in",
    "Grafana Loki, Elasticsearch": "their licences are not to be used here; VictoriaLogs speaks both protocols",
    "RocketMQ, Loggly, Alibaba SLS, Tencent CLS, Google Cloud Logging": "services, or not worth a JVM",
}


def counterparts() -> dict:
    """Name -> module, of all modules with `run`."""
    found = {}
    for path in sorted(HERE.glob("*.py")):
        if path.stem != "run" and re.search(r"^def run\(", path.read_text(), re.MULTILINE):
            found[path.stem] = importlib.import_module(path.stem)
    return found


def run_one(name: str, module, args) -> tuple[str, list[str], float]:
    """Verdict, findings and seconds of one counterpart."""
    folder = args.logs / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = time.monotonic()
    with Scene(folder, args.binary, args.short) as scene:
        try:
            module.run(scene)
        except Missing as missing:
            return "missing", [str(missing)], time.monotonic() - begin
        except Exception as error:  # noqa: BLE001 (the other counterparts run all the same)
            scene.failures.append(f"the run ended early: {type(error).__name__}: {error}")
    verdict = "failed" if scene.failures else f"{scene.passed} passed"
    return verdict, scene.failures, time.monotonic() - begin


def main() -> int:
    found = counterparts()
    parser = argparse.ArgumentParser(description="Plugins against real servers.")
    parser.add_argument("--binary", type=Path, default=Path(os.environ.get("BINARY", ROOT / "target/release/yumen")),
                        help="Yumen's binary")
    parser.add_argument("--only", action="append", choices=sorted(found), metavar="NAME", help="run this counterpart; repeatable")
    parser.add_argument("--list", action="store_true", help="list the counterparts, and do nothing else")
    parser.add_argument("--short", action="store_true", help="leave out the parts that take longer than 10 s")
    parser.add_argument("--logs", type=Path, default=ROOT / "target/counterparts", help="folder of logs, replaced by each run")
    args = parser.parse_args()
    args.binary, args.logs = args.binary.resolve(), args.logs.resolve()
    if args.list:
        for name, module in found.items():
            print(f"{name:16} {(module.__doc__ or '').splitlines()[0]}")
        return 0
    if not args.binary.exists():
        sys.exit(f"counterparts: {args.binary} is missing: run `make build`, or name a binary by --binary")
    rows = []
    for name in args.only or found:
        print(f"--- {name}: {(found[name].__doc__ or '').splitlines()[0]}", flush=True)
        rows.append((name, *run_one(name, found[name], args)))
    print("\n| counterpart | result | seconds |\n|---|---|---|")
    for name, verdict, _, seconds in rows:
        print(f"| {name} | {verdict} | {seconds:.0f} |")
    for name, reason in NOT_SERVED.items() if not args.only else ():
        print(f"| {name} | not served: {reason} | |")
    print()
    for name, verdict, findings, _ in rows:
        for finding in findings:
            print(f"{'MISSING' if verdict == 'missing' else 'FAILED'}: {name}: {finding}")
    return 1 if any(findings for _, _, findings, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The Helm chart: goldens, lint, plain manifests; then manifests on a real API server, and requests through what they start.

The fast part (`--only chart`) needs helm alone. `manifests` applies every rendering to a test cluster by a server-side dry run.
`serve` installs renderings and sends requests; it needs root, for network namespaces. `scripts/deps.sh helm kubernetes` builds the
programs. Usage: conformance/helm/run.py [--only chart|manifests|serve]... [--update] [--binary FILE] [--logs FOLDER]
"""

import argparse
import os
import sys
import time
from pathlib import Path

import chart

sys.path.insert(0, str(chart.ROOT / "conformance/kubernetes"))

PARTS = ("chart", "manifests", "serve")


def check_chart(binary: Path, logs: Path) -> list[str]:
    findings = chart.stale() + chart.lint() + chart.accepted_mistakes()
    if binary.exists():
        return findings + chart.refused_node_files(binary, logs / "nodes")
    print(f"          node files are not checked: {binary} is missing")
    return findings


def check_cluster(parts: list[str], binary: Path, logs: Path) -> list[str]:
    """The parts that need a cluster share one."""
    import cluster_parts
    return cluster_parts.run(parts, binary, logs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Tests of the Helm chart.")
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part; repeatable")
    parser.add_argument("--update", action="store_true", help="write goldens and plain manifests, and do nothing else")
    parser.add_argument("--binary", type=Path, default=Path(os.environ.get("BINARY", chart.ROOT / "target/release/yumen")),
                        help="Yumen's binary")
    parser.add_argument("--logs", type=Path, default=chart.ROOT / "target/helm", help="folder of logs, replaced by each run")
    args = parser.parse_args()
    if not chart.HELM.exists():
        print(f"helm: {chart.HELM} is missing: run scripts/deps.sh helm", file=sys.stderr)
        return 0 if os.environ.get("SKIP_IF_OFFLINE") else 1
    if args.update:
        chart.update()
        return 0
    parts = args.only or list(PARTS)
    failures = []
    begin = time.monotonic()
    try:
        if "chart" in parts:
            failures += check_chart(args.binary.resolve(), args.logs.resolve())
            print(f"{time.monotonic() - begin:6.1f} s  chart: {len(failures) or 'no'} findings", flush=True)
        if rest := [part for part in parts if part != "chart"]:
            failures += check_cluster(rest, args.binary.resolve(), args.logs.resolve())
    except chart.ChartError as error:
        failures.append(str(error))
    except KeyboardInterrupt:
        return 130
    for failure in failures:
        print(f"FAILED: {failure}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

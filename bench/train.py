#!/usr/bin/env python3
"""Records the execution profile by which the compiler lays out the program (decision 35).

Runs an instrumented build through the work of a gateway: the scenarios of bench.py, WebSockets, writes to the Admin
API under load, and the conformance suites; then merges the counts into profile/yumen.profdata.
`make profile` builds the instrumented binary and runs this script. Usage: bench/train.py COUNTING_BINARY RAW_DIR OUTPUT
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECONDS = 3
# Without scenarios that repeat a path with more routes, and without those that mostly wait.
LEFT_OUT = ("routes-100000",)


def drive_scenarios(folder, bench, gw):
    """Every scenario against yumen alone, briefly."""
    upstream = gw.start_upstream(folder)
    beside = [gw.start_grpc(folder, upstream), gw.start_redis(folder, upstream), gw.start_either(folder, upstream)]
    try:
        cert = gw.make_certificate(folder)
        gw.make_full_handshake()
        for scenario in bench.SCENARIOS:
            if scenario.name in LEFT_OUT or (scenario.call and not beside[0]) or ("redis" in scenario.name and not beside[1]):
                continue
            gateway = gw.start_yumen(folder, f"{scenario.name}-yumen", scenario.flavour, upstream, cert)
            try:
                seen = bench.load(gateway, scenario, SECONDS, gw.route_names(scenario.flavour))
                print(f"  {scenario.name:<24}{seen.rate:>10.0f} req/s  {seen.errors}", flush=True)
            finally:
                gateway.stop()
    finally:
        for program in (*beside, upstream):
            if program:
                program.stop()


def drive(script, *args, env):
    """Runs one of the project's scripts; its measurements are not used here."""
    run = subprocess.run([sys.executable, script, *args], env=env, capture_output=True, text=True)
    print(f"  {Path(script).name:<24}{'done' if run.returncode == 0 else 'ended with ' + str(run.returncode)}", flush=True)


def joiner():
    """The llvm-profdata of the LLVM version of the pinned compiler: Debian's, or rustup's component."""
    version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    major = re.search(r"LLVM version: (\d+)", version)[1]
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    found = shutil.which(f"llvm-profdata-{major}") or next(Path(sysroot).glob("lib/rustlib/*/bin/llvm-profdata"), None)
    return found or sys.exit(f"train: no llvm-profdata of LLVM {major}: install Debian's llvm-{major}, or rustup's llvm-tools")


def main():
    binary, raw, output = (Path(arg).resolve() for arg in sys.argv[1:])
    # One file for all runs, merged by the runtime at each exit.
    os.environ["LLVM_PROFILE_FILE"] = str(raw / "run-%2m.profraw")
    os.environ["YUMEN"] = os.environ["BINARY"] = str(binary)
    import bench
    import gateways as gw
    for stale in raw.glob("*.profraw"): # left by build scripts and macros, which are instrumented too
        stale.unlink()
    with tempfile.TemporaryDirectory(prefix="yumen-train-") as folder:
        os.chmod(folder, 0o755)
        drive_scenarios(Path(folder), bench, gw)
    env = dict(os.environ)
    drive(HERE / "websockets.py", "--rounds=1", env=env)
    drive(HERE / "admin.py", "--routes=2000", "--seconds=3", "--churn-seconds=5", env=env)
    drive(HERE.parent / "conformance/run.py", env=env)
    output.parent.mkdir(parents=True, exist_ok=True)
    found = sorted(raw.glob("*.profraw"))
    subprocess.run([joiner(), "merge", "--sparse", "-o", output, *found], check=True)
    print(f"{output}: {output.stat().st_size // 1024} KiB from {len(found)} files")


if __name__ == "__main__":
    main()

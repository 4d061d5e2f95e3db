#!/usr/bin/env bash
# Fuzzes targets of fuzz/, by default all, for some seconds each. Usage: scripts/fuzz.sh [SECONDS [TARGET]...]
# Uses stable Rust and libFuzzer: coverage comes from LLVM's pass by flags, without nightly or cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${1:-60}
wanted=("${@:2}")

host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
# The explicit target triple makes the flags apply to the fuzz targets only, not to build scripts. The lock
# file follows the crates, so `--locked` is not used.
cargo build -q --release --target "$host"

for source in fuzz_targets/*.rs; do
    name=$(basename "$source" .rs)
    [[ ${#wanted[@]} -eq 0 || " ${wanted[*]} " == *" $name "* ]] || continue
    # Findings stay in corpus/, which git ignores; useful ones are committed under seeds/.
    found=corpus/$name
    mkdir -p "$found" artifacts
    seeds=()
    [[ -d seeds/$name ]] && seeds=("seeds/$name")
    log=target/$name.log
    if ! "target/$host/release/$name" "$found" "${seeds[@]}" -max_total_time="$seconds" -max_len=4096 \
        -timeout=10 -artifact_prefix="artifacts/$name-" >"$log" 2>&1; then
        tail -40 "$log" >&2
        echo "fuzz: $name failed; its input is in fuzz/artifacts/" >&2
        exit 1
    fi
    echo "fuzz: $name: $(grep -E '^Done|^stat::|DONE' "$log" | tail -1)"
done

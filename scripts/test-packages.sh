#!/usr/bin/env bash
# Builds packages and image around BINARY and tries them: see deploy/packages/trial.py. Needs root.
# Usage: BINARY=target/release/yumen scripts/test-packages.sh [archives|deb|systemd|lintian|rpm|image|sbom|compose]...
#
# A binary of `cargo build` needs the glibc of this machine and is larger than a released one: those two bounds hold for the
# output of scripts/release.sh only, which the release workflow tries by TRY=released.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
next=${version%.*}.$((${version##*.} + 1))
"$root/scripts/deps.sh" packages packages-test
export COMPRESSION=gzip
if [[ ${TRY:-} != released ]]; then
    export OUT=$root/target/packages-trial YUMEN_TRIAL_ANY_GLIBC=1 YUMEN_TRIAL_ANY_SIZE=1
    : "${BINARY:?the binary to try}"
    scripts/release.sh build archives packages image sbom >/dev/null
fi
out=${OUT:-$root/target/packages}
VERSION=$next scripts/release.sh packages >/dev/null
trap 'rm -f "$out"/yumen[_-]"$next"*' EXIT
deploy/packages/trial.py --out "$out" --version "$version" --next "$next" --arch "$(dpkg --print-architecture)" "$@"

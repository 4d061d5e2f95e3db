#!/usr/bin/env bash
# Builds what is released, into target/packages: archives, Debian and RPM packages, the container image, the SBOM, checksums.
# Usage: scripts/release.sh [build] [archives] [packages] [image] [sbom] [sums]... (default: all of them, in this order;
# image writes the list of its packages for sbom)
#
#   ARCHS="amd64 arm64"  architectures by their Debian names (default: that of this machine)
#   TAG=v0.1.0           must be the version of the workspace; without it, nothing is compared
#   BINARY=PATH          takes this binary for the one architecture instead of building one
#   DIST_PROFILE=dist    profile of cargo
#   VERSION=0.1.1        another version than that of the workspace, for trials
#   COMPRESSION=xz       of packages; gzip for trials, where xz takes most of the time
#
# The binaries need glibc 2.31 (Debian 11, Ubuntu 20.04, RHEL 9): they are linked by zig, which has the symbol versions of
# every glibc, and is the C compiler for the other architecture too. musl is no target: its allocator and its name
# resolution are slower, and plugins in C libraries would need a second build of everything.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

glibc=2.31
host=$(dpkg --print-architecture 2>/dev/null || echo amd64)
archs=${ARCHS:-$host}
profile=${DIST_PROFILE:-dist}
workspace_version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
version=${VERSION:-$workspace_version}
out=${OUT:-$root/target/packages}
tools=$root/target/tools
# One time for all files, so that the same sources give the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

if [[ -n ${TAG:-} && $TAG != v$workspace_version ]]; then
    echo "the tag is $TAG, the version in Cargo.toml $workspace_version: change one of them" >&2
    exit 1
fi
if [[ -n ${BINARY:-} && $archs == *" "* ]]; then
    echo "BINARY is for one architecture, ARCHS are $archs" >&2
    exit 1
fi

triple() {
    case $1 in
    amd64) echo x86_64-unknown-linux-gnu ;;
    arm64) echo aarch64-unknown-linux-gnu ;;
    *) echo "no release for $1: amd64 or arm64" >&2 && exit 1 ;;
    esac
}

# Compiles for an architecture; prints the path of the binary.
compile() {
    local arch=$1 target profdata=$root/profile/yumen.profdata
    target=$(triple "$arch")
    "$root/scripts/deps.sh" release
    # No path of this machine in the binary.
    local flags="--remap-path-prefix=$root=/usr/src/yumen --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/usr/src/cargo"
    # The flags of `make dist`.
    [[ $profile != dist ]] || flags+=" -Cprofile-use=$profdata --cfg=profile_$(cksum <"$profdata" | cut -d' ' -f1)"
    export PATH=$tools/zig/bin:$tools/cargo/bin:$PATH RUSTFLAGS=$flags CARGO_TARGET_DIR=$root/target/packages-build
    if [[ $arch == "$host" ]]; then
        # Without --target, which is part of the names of all symbols: the recorded profile would match none of them.
        local tool upper=${target^^} lower=${target//-/_}
        for tool in cc c++ ar; do
            printf '#!/bin/sh\nexec cargo-zigbuild zig %s -- %s "$@"\n' "$tool" \
                "$([[ $tool == ar ]] || echo "-g -fno-sanitize=all -target ${target/-unknown/}.$glibc")" >"$tools/zig/bin/yumen-$tool"
            chmod +x "$tools/zig/bin/yumen-$tool"
        done
        env "CARGO_TARGET_${upper//-/_}_LINKER=yumen-cc" "CC_$lower=yumen-cc" "CXX_$lower=yumen-c++" "AR_$lower=yumen-ar" \
            nice -n 5 cargo build --profile "$profile" --locked --bin yumen >&2
        echo "$CARGO_TARGET_DIR/$profile/yumen"
    else
        echo "$arch is compiled on $host: the recorded profile has no effect" >&2
        nice -n 5 cargo zigbuild --profile "$profile" --locked --bin yumen --target "$target.$glibc" >&2
        echo "$CARGO_TARGET_DIR/$target/$profile/yumen"
    fi
}

# objcopy of LLVM in the toolchain, which handles every architecture.
objcopy() {
    local sysroot found
    sysroot=$(rustc --print sysroot)
    found=$(find "$sysroot" -name rust-objcopy -print -quit)
    LD_LIBRARY_PATH=$sysroot/lib "${found:-/usr/bin/objcopy}" "$@"
}

# The binary of an architecture, its debug information apart.
build() {
    local built stage=$out/stage/$1
    mkdir -p "$stage/bin"
    built=${BINARY:-}
    [[ -n $built ]] || built=$(compile "$1")
    built=$(realpath "$built")
    objcopy --only-keep-debug "$built" "$stage/yumen.debug"
    (cd "$stage" && objcopy --strip-all --add-gnu-debuglink=yumen.debug "$built" bin/yumen)
    chmod 755 "$stage/bin/yumen"
}

# Man pages and completions are the same for all architectures; a binary that runs here writes them.
describe() {
    local arch stage runnable=""
    for arch in $archs; do
        if "$out/stage/$arch/bin/yumen" version >/dev/null 2>&1; then runnable=$out/stage/$arch/bin/yumen; fi
    done
    [[ -n $runnable ]] || runnable=${HOST_BINARY:?no binary of ARCHS runs here: name one of this version that does}
    for arch in $archs; do
        stage=$out/stage/$arch
        rm -rf "$stage/man" "$stage/completions"
        mkdir -p "$stage/man" "$stage/completions"
        "$runnable" man "$stage/man"
        gzip -n9 "$stage"/man/*
        "$runnable" completions bash >"$stage/completions/yumen.bash"
        "$runnable" completions zsh >"$stage/completions/_yumen"
        "$runnable" completions fish >"$stage/completions/yumen.fish"
        gzip -n9c CHANGELOG.md >"$stage/CHANGELOG.md.gz"
        copyright >"$stage/copyright"
    done
}

# The copyright file of Debian (machine-readable, version 1.0).
copyright() {
    cat <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: yumen

Files: *
Copyright: 2026 The Yumen authors
License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
Comment:
TEXT
    sed 's/^$/./; s/^/ /' NOTICE
}

# The changelog in the format of Debian; the changes themselves are in CHANGELOG.md beside it.
debian_changelog() {
    cat <<TEXT
yumen ($version) stable; urgency=medium

  * See CHANGELOG.md.gz.

 -- Yumen maintainers <maintainers@yumen.invalid>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
TEXT
}

archive() {
    local arch=$1 name=yumen-$version-linux-$1 stage=$out/stage/$1 folder
    folder=$(mktemp -d)
    mkdir -p "$folder/$name/systemd"
    cp -r "$stage/bin/yumen" "$stage/man" "$stage/completions" LICENSE NOTICE README.md README.zh-CN.md CHANGELOG.md \
        "$folder/$name"
    cp deploy/packages/yumen.yaml "$folder/$name/"
    cp deploy/systemd/* "$folder/$name/systemd/"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$folder" -c "$name" |
        gzip -n9 >"$out/$name.tar.gz"
    rm -rf "$folder"
    gzip -n9c "$stage/yumen.debug" >"$out/$name.debug.gz"
}

# One description for both formats, by nfpm: cargo-deb and cargo-generate-rpm would be two, and build for themselves.
package() {
    local arch=$1 format folder
    "$root/scripts/deps.sh" packages
    debian_changelog | gzip -n9 >"$out/stage/$arch/changelog.gz"
    # nfpm expands variables in few members only.
    folder=$(mktemp -d)
    NFPM_ARCH=$arch NFPM_VERSION=$version NFPM_MTIME=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ) \
        STAGE=$out/stage/$arch GLIBC=$glibc COMPRESSION=${COMPRESSION:-xz} \
        envsubst '$NFPM_ARCH $NFPM_VERSION $NFPM_MTIME $STAGE $GLIBC $COMPRESSION' <deploy/packages/nfpm.yaml >"$folder/nfpm.yaml"
    for format in deb rpm; do
        "$tools/nfpm" package --config "$folder/nfpm.yaml" --packager "$format" --target "$out"
    done
    rm -rf "$folder"
}

image() {
    local arch arguments=()
    "$root/scripts/deps.sh" packages
    for arch in $archs; do
        deploy/image/base.sh "$arch" "$out/stage/$arch/base"
        arguments+=(--arch "$arch" "$out/stage/$arch/bin/yumen" "$out/stage/$arch/base")
    done
    rm -rf "$out/image"
    deploy/image/build.py --out "$out/image" --version "$version" --time "$SOURCE_DATE_EPOCH" "${arguments[@]}"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$out/image" \
        -cf "$out/yumen-$version-image.tar" oci-layout index.json blobs
}

# One bill of materials per architecture, validated against the schema of CycloneDX.
sbom() {
    local arch file
    "$root/scripts/deps.sh" sbom
    for arch in $archs; do
        file=$out/yumen-$version-linux-$arch.cdx.json
        scripts/sbom.py --target "$(triple "$arch")" --version "$version" --time "$SOURCE_DATE_EPOCH" \
            --image "$out/stage/$arch/base.packages" >"$file"
        "$tools/sbom/bin/python" - "$file" <<'CHECK'
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
with open(sys.argv[1]) as file:
    sys.exit(JsonStrictValidator(SchemaVersion.V1_5).validate_str(file.read()) and f"{sys.argv[1]} is not valid")
CHECK
    done
}

mkdir -p "$out"
steps=("$@")
[[ $# -gt 0 ]] || steps=(build archives packages image sbom sums)
for step in "${steps[@]}"; do
    case $step in
    build)
        for arch in $archs; do build "$arch"; done
        describe
        ;;
    archives) for arch in $archs; do archive "$arch"; done ;;
    packages) for arch in $archs; do package "$arch"; done ;;
    image) image ;;
    sbom) sbom ;;
    sums) (cd "$out" && sha256sum yumen*.* >SHA256SUMS) ;;
    *) echo "unknown step $step: build, archives, packages, image, sbom or sums" >&2 && exit 2 ;;
    esac
done
ls -l "$out" | sed -n '2,$p'

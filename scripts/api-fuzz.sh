#!/usr/bin/env bash
# Asks the Admin API what nobody thought of, from its own OpenAPI document; the same questions for the same seed.
# Usage: scripts/api-fuzz.sh [BINARY [EXAMPLES [SEED]]]   (default: target/debug/yumen 20 1)
# With URL (and KEY) set, an API that runs already is asked instead. Needs python3; tools go to target/api-fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${1:-target/debug/yumen}
examples=${2:-20}
seed=${3:-1}

venv=$PWD/target/api-fuzz
# A version that was tried: the options below are its.
version=4.32.5
if ! "$venv/bin/schemathesis" --version 2>/dev/null | grep -qF "$version"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q "schemathesis==$version" openapi-spec-validator
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

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start_gateway() {
    local port
    port=$(free_port)
    key=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
    URL=http://127.0.0.1:$port
    cat >"$work/yumen.yaml" <<YAML
admin:
  listen: 127.0.0.1:$port
  keys:
    - { name: fuzz, key: $key, role: admin }
YAML
    "$binary" run --config "$work/yumen.yaml" --data-dir "$work/data" --listen "127.0.0.1:$(free_port)" \
        --listen-tls "127.0.0.1:$(free_port)" --status "127.0.0.1:$(free_port)" >"$work/log" 2>&1 &
    gateway=$!
    for _ in $(seq 300); do
        curl -fsS -o "$work/openapi.json" -H "X-API-KEY: $key" "$URL/yumen/v1/openapi.json" 2>/dev/null && return
        kill -0 "$gateway" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/log" >&2
    echo "api-fuzz: $binary does not serve its Admin API at $URL" >&2
    exit 1
}

key=${KEY:-}
if [[ -n ${URL:-} ]]; then
    curl -fsS -o "$work/openapi.json" -H "X-API-KEY: $key" "$URL/yumen/v1/openapi.json"
else
    start_gateway
fi
"$venv/bin/openapi-spec-validator" "$work/openapi.json"

# A refusal may carry what the document does not describe, so only what is promised of answers is checked.
# Replacing everything would take the ground from under the others, and is asked elsewhere.
# It leaves its notes where it runs.
if ! (cd "$work" && "$venv/bin/schemathesis" run openapi.json --url "$URL" -H "X-API-KEY: $key" \
    --checks not_a_server_error,response_schema_conformance --phases examples,coverage,fuzzing \
    --exclude-path /apisix/admin/configs --max-examples "$examples" --seed "$seed" --generation-database none \
    --suppress-health-check all --warnings off --request-timeout 30 --no-color); then
    [[ -s $work/log ]] && tail -20 "$work/log" >&2
    echo "api-fuzz: failed with seed $seed" >&2
    exit 1
fi
if [[ -n $gateway ]] && ! kill -0 "$gateway" 2>/dev/null; then
    echo "api-fuzz: the gateway has ended" >&2
    exit 1
fi

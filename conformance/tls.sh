#!/usr/bin/env bash
# Checks the result of a TLS scanner for a listener with default settings: exactly the listed protocols,
# suites and groups; additional ones fail too. Requires sslscan, openssl and curl (scripts/deps.sh test).
# Usage: [BINARY=target/release/yumen] conformance/tls.sh
set -euo pipefail
cd "$(dirname "$0")/.."
binary=${BINARY:-target/release/yumen}
[[ -x $binary ]] || { echo "there is no $binary: make build" >&2; exit 1; }
binary=$(realpath "$binary")
dir=$(mktemp -d)
trap 'kill "${gateway:-}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT

pair() { # name, arguments of -newkey
    openssl req -x509 -nodes -days 30 -subj "/CN=$1" -addext "subjectAltName=DNS:scan.test" \
        -newkey "${@:2}" -keyout "$dir/$1.key" -out "$dir/$1.pem" 2>/dev/null
}
pair rsa rsa:2048
pair ecdsa ec -pkeyopt ec_paramgen_curve:P-256
python3 - "$dir" <<'PY'
import json, pathlib, sys
at = pathlib.Path(sys.argv[1])
read = lambda name: (at / name).read_text()
ssl = {"id": "scan", "snis": ["scan.test"], "cert": read("rsa.pem"), "key": read("rsa.key"),
       "certs": [read("ecdsa.pem")], "keys": [read("ecdsa.key")]}
mock = {"mocking": {"response_example": "scanned"}}
(at / "routes.json").write_text(json.dumps({"routes": [{"id": "1", "uri": "/*", "plugins": mock}], "ssls": [ssl]}))
PY
(cd "$dir" && exec "$binary" run --file routes.json --listen 127.0.0.1:0 --listen-tls 127.0.0.1:0 \
    --admin 127.0.0.1:0 --status 127.0.0.1:0) >"$dir/out" 2>"$dir/err" &
gateway=$!
for _ in $(seq 600); do
    address=$(sed -n 's|.*https://\([0-9.:]*\).*|\1|p' "$dir/out" | head -1)
    [[ -n $address ]] && break
    kill -0 "$gateway" 2>/dev/null || { cat "$dir/err" >&2; exit 1; }
    sleep 0.1
done

sslscan --no-colour --sni-name=scan.test --show-sigs "$address" >"$dir/scan" 2>&1
grep -E '^(SSLv|TLSv1\.[0-3] +(en|dis)abled)|^(Preferred|Accepted) |renegotiation|[Cc]ompression|vulnerable|Fallback SCSV|bits  ' "$dir/scan" \
    | sed -E 's/ +$//; s/ +/ /g; s/DHE [0-9]+ bits//; s/ Curve .*//; s/^(Preferred|Accepted) /offers /; /:$/d; s/^ +//; s/ +$//' | LC_ALL=C sort -u >"$dir/found"
grep -v '^#' conformance/tls.expected | LC_ALL=C sort -u >"$dir/expected"
if ! diff -u "$dir/expected" "$dir/found"; then
    echo "the scan found something else than conformance/tls.expected says" >&2
    exit 1
fi
echo "tls: sslscan found what it should, and nothing else ($(wc -l <"$dir/found") lines)"

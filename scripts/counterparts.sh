# Servers of conformance/counterparts; sourced by scripts/deps.sh. Each is built or downloaded once per version and user into
# ~/.cache/yumen-counterparts, one at a time. Without a registry a message is printed; conformance/counterparts/run.py reports the absence.
# shellcheck shell=bash
counterparts=${HOME:-/root}/.cache/yumen-counterparts
counterpart_programs=$root/conformance/counterparts/programs

# Whether a server is missing or of another version. The version is the checksum of its pins.
counterpart_missing() {
    local name=$1 sum
    shift
    sum=$(cat "$@" | cksum)
    [[ $(cat "$counterparts/$name.sum" 2>/dev/null) == "$sum" ]] && return 1
    echo "building: $name (minutes)" >&2
}

# Notes the version of an installed server.
counterpart_done() {
    local name=$1
    shift
    cat "$@" | cksum >"$counterparts/$name.sum"
}

# A program of a Go module: NAME PACKAGE, with further arguments of the compiler.
counterpart_go() {
    local name=$1 package=$2 folder=$counterpart_programs/$1
    shift 2
    local pins
    # Some have no program of their own.
    mapfile -t pins < <(compgen -G "$folder/go.*"; compgen -G "$folder/*.go")
    counterpart_missing "$name" "${pins[@]}" || return 0
    command -v go >/dev/null || { echo "no Go here: $name is not built" >&2; return 0; }
    if (cd "$folder" && CGO_ENABLED=0 nice -n 19 go build -trimpath -ldflags "-s -w" "$@" -o "$counterparts/$name" "$package" \
        </dev/null 9>&- >&2); then
        counterpart_done "$name" "${pins[@]}"
    else
        echo "$name is not built: is the Go module proxy out of reach?" >&2
    fi
}

# The jars of a pom.xml, in a folder: NAME.
counterpart_maven() {
    local name=$1 folder=$counterpart_programs/$1
    counterpart_missing "$name" "$folder/pom.xml" || return 0
    command -v mvn >/dev/null || { echo "no Maven here: $name is not installed" >&2; return 0; }
    rm -rf "${counterparts:?}/$name"
    if mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$counterparts/$name" \
        -DincludeScope=runtime </dev/null 9>&- >&2; then
        counterpart_done "$name" "$folder/pom.xml"
    else
        echo "$name is not installed: is Maven Central out of reach?" >&2
    fi
}

# A program as one jar: NAME COORDINATES.
counterpart_jar() {
    local name=$1 coordinates=$2
    [[ $(cat "$counterparts/$name.sum" 2>/dev/null) == "$coordinates" ]] && return 0
    command -v mvn >/dev/null || { echo "no Maven here: $name is not installed" >&2; return 0; }
    echo "installing: $coordinates" >&2
    if mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="$coordinates" \
        -DoutputDirectory="$counterparts/$name" -Dmdep.stripVersion=true -Dmdep.stripClassifier=true </dev/null 9>&- >&2; then
        echo "$coordinates" >"$counterparts/$name.sum"
    else
        echo "$coordinates is not installed: is Maven Central out of reach?" >&2
    fi
}

# Packages of PyPI in a folder: NAME PACKAGE... Each package names its version.
counterpart_pip() {
    local name=$1
    shift
    [[ $(cat "$counterparts/$name.sum" 2>/dev/null) == "$*" ]] && return 0
    echo "installing: $*" >&2
    rm -rf "${counterparts:?}/$name"
    if python3 -m pip install -q --disable-pip-version-check --no-warn-script-location --root-user-action ignore --target "$counterparts/$name" \
        "$@" </dev/null 9>&- >&2; then
        echo "$*" >"$counterparts/$name.sum"
    else
        echo "$* cannot be installed: is PyPI out of reach?" >&2
    fi
}

install_counterparts() {
    wanted counterparts || return 0
    mkdir -p "$counterparts"
    exec 9>"$counterparts/lock"
    flock 9
    counterpart_go victorialogs github.com/VictoriaMetrics/VictoriaLogs/app/victoria-logs
    counterpart_go collector .
    counterpart_maven kafka
    counterpart_maven opensearch
    counterpart_jar zipkin io.zipkin:zipkin-server:3.5.1:jar:exec
    counterpart_pip confluent-kafka confluent-kafka==2.16.1
    counterpart_pip otlp opentelemetry-proto==1.45.2 grpcio==1.85.1
    exec 9>&-
}

# The packages of a package.json with its lock, in a folder: NAME.
counterpart_npm() {
    local name=$1 folder=$counterpart_programs/$1
    counterpart_missing "$name" "$folder"/package*.json || return 0
    command -v npm >/dev/null || { echo "no npm here: $name is not installed" >&2; return 0; }
    rm -rf "${counterparts:?}/$name" && mkdir -p "$counterparts/$name"
    cp "$folder"/package*.json "$counterparts/$name/"
    if (cd "$counterparts/$name" && nice -n 19 npm ci --silent --ignore-scripts --no-audit --no-fund --fetch-retries 1 --fetch-timeout 20000 \
        </dev/null 9>&- >&2); then
        counterpart_done "$name" "$folder"/package*.json
    else
        echo "$name is not installed: is the npm registry out of reach?" >&2
    fi
}

# The packages of a requirements.txt, in a virtual environment: NAME.
counterpart_python() {
    local name=$1 pins=$counterpart_programs/$1/requirements.txt
    counterpart_missing "$name" "$pins" || return 0
    python3 -m venv --clear "$counterparts/$name"
    if nice -n 19 "$counterparts/$name/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 -r "$pins" </dev/null 9>&- >&2; then
        counterpart_done "$name" "$pins"
    else
        echo "$name is not installed: is PyPI out of reach?" >&2
    fi
}

# The distribution of Keycloak, as its pom.xml names it.
counterpart_keycloak() {
    local folder=$counterpart_programs/keycloak zip=$counterparts/keycloak.zip
    counterpart_missing keycloak "$folder/pom.xml" || return 0
    command -v mvn >/dev/null || { echo "no Maven here: keycloak is not installed" >&2; return 0; }
    rm -rf "${counterparts:?}/keycloak"
    if nice -n 19 mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$zip" </dev/null 9>&- >&2; then
        python3 -m zipfile -e "$zip"/keycloak-*.zip "$zip"
        mv "$zip"/keycloak-*/ "$counterparts/keycloak"
        chmod +x "$counterparts"/keycloak/bin/*.sh
        counterpart_done keycloak "$folder/pom.xml"
    else
        echo "keycloak is not installed: is Maven Central out of reach?" >&2
    fi
    rm -rf "$zip"
}

# Servers of logins, authorization and secrets. The journeys share the browser driver of the dashboard.
install_counterparts_identity() {
    wanted counterparts || return 0
    "$root/scripts/deps.sh" dashboard
    mkdir -p "$counterparts"
    exec 9>"$counterparts/lock"
    flock 9
    counterpart_npm oidc-provider
    counterpart_python moto
    counterpart_keycloak
    counterpart_go opa github.com/open-policy-agent/opa
    counterpart_go vault .
    exec 9>&-
}

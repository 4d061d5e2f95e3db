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
    local pins=("$folder"/go.* "$folder"/*.go)
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
    if nice -n 19 mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DoutputDirectory="$counterparts/$name" \
        -DincludeScope=runtime </dev/null 9>&- >&2; then
        counterpart_done "$name" "$folder/pom.xml"
    else
        echo "$name is not installed: is Maven Central out of reach?" >&2
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
    exec 9>&-
}

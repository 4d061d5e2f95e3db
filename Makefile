# One line per thing a developer does. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
CARGO ?= cargo
ARGS ?=
# Where Debian keeps nginx and haproxy, for users who are not root.
export PATH := $(PATH):/usr/sbin:/sbin
FUZZ_SECONDS ?= 60
SEED ?= 1
# The build for everyday use: no link-time optimization, so that a first build takes minutes.
YUMEN := target/release/yumen
# The build that is released and benchmarked: whole-program optimization, laid out by a recorded profile
# (docs/decisions/0035-profile.md). Cargo does not track the profile, so its checksum is part of the flags.
DIST := target/dist/yumen
PROFILE := profile/yumen.profdata
DIST_FLAGS := $(RUSTFLAGS) -Cprofile-use=$(CURDIR)/$(PROFILE) --cfg=profile_$(firstword $(shell cksum $(PROFILE)))
# Where `make profile` keeps the build with counters, and what it counted.
COUNTING := target/profile

.PHONY: help run build dist profile test ci lint fmt unit docs instructions fuzz fuzz-short fuzz-api fuzz-api-short conformance conformance-short conformance-kubernetes conformance-kubernetes-short test-kubernetes bench bench-admin bench-kubernetes bench-load bench-hang lab lab-build lab-kubernetes clean test-helm packages image release test-packages site test-dashboard dashboard-types counterparts

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build the release binary and start the gateway on its defaults (ARGS="--file routes.yaml")
	exec $(YUMEN) run $(ARGS)

build: ## build the binary for everyday use (target/release/yumen)
	@scripts/deps.sh build
	$(CARGO) build --release --locked --bin yumen

dist: ## build the binary that is released and benchmarked, its debug information apart (target/dist/yumen, yumen.debug)
	@scripts/deps.sh build
	RUSTFLAGS="$(DIST_FLAGS)" $(CARGO) build --profile dist --locked --bin yumen
	objcopy --only-keep-debug $(DIST) $(DIST).debug
	objcopy --strip-all --add-gnu-debuglink=$(DIST).debug $(DIST) $(DIST).stripped
	mv $(DIST).stripped $(DIST)

profile: ## record the profile of a release anew (before a release, not for a ratchet)
	@scripts/deps.sh profile bench conformance
	mkdir -p $(COUNTING)/raw
	RUSTFLAGS="$(RUSTFLAGS) -Cprofile-generate=$(CURDIR)/$(COUNTING)/raw" \
	    $(CARGO) build --profile dist --locked --bin yumen --target-dir $(COUNTING)
	@bench/train.py $(COUNTING)/dist/yumen $(COUNTING)/raw $(PROFILE)

# A test whose tools or privileges are missing fails here; `cargo test` alone skips it with a message.
test: export YUMEN_REQUIRE_ALL := 1
# Each crate is built once here, so the incremental state would only fill the disk (some 10 GB).
test: export CARGO_INCREMENTAL := 0
test: ## everything CI runs
	@scripts/deps.sh test fuzz conformance lab
	@$(MAKE) --no-print-directory lint dashboard-types unit build instructions conformance-short fuzz-api-short fuzz-short

ci: test

lint: ## formatting, clippy, tidy: arrows, sizes, purity, licences, duplicates, docs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) check --manifest-path fuzz/Cargo.toml
	$(CARGO) run -q --locked -p xtask -- tidy

fmt: ## format the code
	$(CARGO) fmt --all

# Every layer names the whole workspace, so that all of them share one build. Integration tests mostly wait for timers
# and other processes, so that more of them than cores run at once.
TESTS := $(CARGO) test -q --workspace --locked
unit: ## unit, golden, property and integration tests, each layer within its time budget
	$(CARGO) test --workspace --locked --no-run
	@scripts/layer.sh unit 900 $(TESTS) --lib --bins
	@scripts/layer.sh doc 300 $(TESTS) --doc
	@scripts/layer.sh wire 240 $(TESTS) --test wire
	@scripts/layer.sh kubernetes 300 $(TESTS) --test goldens --test compiled_goldens --test shuffled_goldens \
	    --test precedence --test incremental --test totality --test ingress_requests --test translation_speed \
	    --test api_server
	@scripts/layer.sh crash 300 $(TESTS) --test crash
	@scripts/layer.sh lab 600 $(TESTS) --test load --test load_command --test reports --test smoke
	@scripts/layer.sh documents 400 $(TESTS) --test docs
	@RUST_TEST_THREADS=$$((3 * $$(nproc))) scripts/layer.sh integration 1500 $(TESTS) --test it

docs: ## write docs/reference and docs/zh/reference from the code
	@for part in plugins.md metrics.md config:yumen.yaml ingress-nginx.md; do \
	    $(CARGO) run -q --locked --bin yumen -- reference "$$(sed 's/[.:].*//' <<<"$$part")" > "docs/reference/$${part#*:}"; done
	@for part in plugins.md metrics.md config:yumen.yaml; do \
	    $(CARGO) run -q --locked --bin yumen -- reference "$$(sed 's/[.:].*//' <<<"$$part")" --language zh > "docs/zh/reference/$${part#*:}"; done

instructions: build ## user-space instructions per request, connection and message, against the ratchets
	@YUMEN=$(CURDIR)/$(YUMEN) bench/instructions.py

fuzz: ## fuzz every parser for FUZZ_SECONDS each
	@scripts/deps.sh fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS)

fuzz-short:
	@scripts/fuzz.sh 5

fuzz-api: build ## ask the Admin API what nobody thought of (SEED=1)
	@BINARY=$(YUMEN) scripts/api-fuzz.sh 75 $(SEED)

fuzz-api-short: build
	@BINARY=$(YUMEN) scripts/api-fuzz.sh 30 $(SEED)

conformance: build ## h2spec, HTTP/3, WebSockets, gRPC interop, a TLS scanner; known failures are listed in conformance/ (ARGS="grpc-tls")
	@scripts/deps.sh conformance
	@BINARY=$(YUMEN) conformance/run.py $(ARGS)
	@BINARY=$(YUMEN) conformance/tls.sh

conformance-short: build
	@BINARY=$(YUMEN) conformance/run.py
	@BINARY=$(YUMEN) conformance/tls.sh

conformance-kubernetes: build ## the suite of the Gateway API in a cluster without containers; needs root (ARGS="--test HTTPRouteMatching")
	@scripts/deps.sh kubernetes
	@conformance/kubernetes/run.py --binary $(YUMEN) $(ARGS)

test-kubernetes: build ## Yumen in a cluster without containers while all around it changes; needs root (ARGS="--only rollout")
	@scripts/deps.sh kubernetes
	@conformance/kubernetes/ingress.py --binary $(YUMEN)
	@conformance/kubernetes/robustness.py --binary $(YUMEN) $(ARGS)

test-helm: build ## the Helm chart: goldens, manifests on an API server, requests in a cluster; needs root (ARGS=--update writes goldens)
	@scripts/deps.sh helm kubernetes
	@conformance/helm/run.py --binary $(YUMEN) $(ARGS)

dashboard-types: ## the types of the dashboard, and its libraries against their npm packages
	@scripts/deps.sh dashboard-types
	@target/tools/dashboard/node_modules/.bin/tsc -p conformance/dashboard
	@DASHBOARD_MODULES=$(CURDIR)/target/tools/dashboard/node_modules node conformance/dashboard/vendor.mjs --check

test-dashboard: build dashboard-types ## journeys through the dashboard in Chromium (ARGS="--only keyboard --screenshots target/screenshots")
	@scripts/deps.sh dashboard
	@node conformance/dashboard/run.mjs --binary $(YUMEN) $(ARGS)

counterparts: build ## plugins against real servers of logs, traces, identity and secrets (ARGS="--only rsyslog")
	@scripts/deps.sh counterparts
	@conformance/counterparts/run.py --binary $(YUMEN) $(ARGS)

conformance-kubernetes-short: build
	@scripts/deps.sh kubernetes
	@conformance/kubernetes/run.py --binary $(YUMEN) --short $(ARGS)

bench-admin: dist ## what configuration costs: PUTs per second, writes under load, churn
	@scripts/deps.sh bench
	@bench/admin.py $(ARGS)

bench-kubernetes: dist ## the Kubernetes controller: from a write to requests that follow it, memory, start, beside Traefik
	@scripts/deps.sh bench kubernetes lab-traefik
	@bench/kubernetes.py $(ARGS)

lab-build: ## build the lab's yumen-bench
	RUSTFLAGS="$(DIST_FLAGS)" $(CARGO) build --profile dist --locked -p yumen-lab

lab: dist lab-build ## run a scenario of the lab (ARGS="connection-close --quick")
	@scripts/deps.sh lab
	@target/dist/yumen-bench run $(ARGS)

lab-kubernetes: dist lab-build ## report R2: Ingress controllers in a cluster whose replicas come and go; needs root (ARGS="--seconds 30 --systems yumen")
	@scripts/deps.sh lab kubernetes lab-traefik lab-ingress-nginx
	@bench/lab_kubernetes/run.py $(ARGS)

bench-hang: dist lab-build ## sinks and providers that never answer, for ten minutes under load (ARGS="--seconds 60")
	@scripts/deps.sh bench
	@bench/hang.py $(ARGS)

bench-load: lab-build ## CPU per response of the load generator beside wrk, counts beside h2load
	@scripts/deps.sh bench
	@bench/load.py $(ARGS)

bench: dist ## CPU per request beside NGINX and HAProxy (ARGS="--quick --scenarios plain-16,tls")
	@scripts/deps.sh bench conformance
	@bench/bench.py $(ARGS)

packages: ## build archives, .deb and .rpm into target/packages (ARCHS="amd64 arm64")
	@scripts/release.sh build archives packages

image: ## build the container image as an OCI layout and archive, without a daemon
	@scripts/release.sh build image

release: ## build all that is released: packages, image, SBOM, checksums (TAG=v0.1.0 ARCHS="amd64 arm64")
	@scripts/release.sh

test-packages: build ## try packages in a fresh Debian root and the image in namespaces; needs root (ARGS="deb image")
	@BINARY=$(YUMEN) scripts/test-packages.sh $(ARGS)

site: ## build the documentation site, English and Chinese, into target/site
	@scripts/site.sh

clean: ## remove what was built
	$(CARGO) clean
	$(CARGO) clean --manifest-path fuzz/Cargo.toml

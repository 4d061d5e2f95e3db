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
YUMEN := target/release/yumen
PROFILE := profile/yumen.profdata
# How traffic ran through the program when it was recorded; the compiler lays it out for that (docs/decisions/0035-profile.md).
# Cargo does not look into that file, so its checksum stands among the flags: a new profile is a new build.
# What of it is hot may be inlined although that makes the program larger: eight times as large as is usual.
RELEASE := RUSTFLAGS="$(RUSTFLAGS) -Cprofile-use=$(CURDIR)/$(PROFILE) --cfg=profile_$(firstword $(shell cksum $(PROFILE))) -Cllvm-args=-inline-savings-multiplier=64" $(CARGO) build --release --locked
# Where `make profile` keeps the build with counters, and what it counted.
COUNTING := target/profile

.PHONY: help run build profile test ci lint fmt unit docs instructions fuzz fuzz-short fuzz-api fuzz-api-short conformance conformance-short bench bench-admin bench-load lab lab-build clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## build the release binary and start the gateway on its defaults (ARGS="--file routes.yaml")
	exec $(YUMEN) run $(ARGS)

build: ## build the release binary
	@scripts/deps.sh build
	$(RELEASE) --bin yumen

profile: ## record anew how traffic runs through the program (after changes of the request path)
	@scripts/deps.sh profile bench conformance
	mkdir -p $(COUNTING)/raw
	RUSTFLAGS="$(RUSTFLAGS) -Cprofile-generate=$(CURDIR)/$(COUNTING)/raw" \
	    $(CARGO) build --release --locked --bin yumen --target-dir $(COUNTING)
	@bench/train.py $(COUNTING)/release/yumen $(COUNTING)/raw $(PROFILE)

test: ## everything CI runs
	@scripts/deps.sh test fuzz conformance lab
	@$(MAKE) --no-print-directory lint unit build instructions conformance-short fuzz-api-short fuzz-short

ci: test

lint: ## formatting, clippy, tidy: arrows, sizes, purity, licences, duplicates, docs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) check --manifest-path fuzz/Cargo.toml
	$(CARGO) run -q --locked -p xtask -- tidy

fmt: ## format the code
	$(CARGO) fmt --all

unit: ## unit, golden, property and integration tests
	$(CARGO) test --workspace --locked

docs: ## write docs/reference from the code
	@for part in plugins.md metrics.md config:yumen.yaml; do \
	    $(CARGO) run -q --locked --bin yumen -- reference "$$(sed 's/[.:].*//' <<<"$$part")" > "docs/reference/$${part#*:}"; done

instructions: build ## user-space instructions per request, connection and message, against the ratchets
	@bench/instructions.py

fuzz: ## fuzz every parser for FUZZ_SECONDS each
	@scripts/deps.sh fuzz
	@scripts/fuzz.sh $(FUZZ_SECONDS)

fuzz-short:
	@scripts/fuzz.sh 5

fuzz-api: build ## ask the Admin API what nobody thought of (SEED=1)
	@BINARY=$(YUMEN) scripts/api-fuzz.sh 75 $(SEED)

# The only step that needs PyPI: where that is out of reach it says so and is left out.
fuzz-api-short: build
	@SKIP_IF_OFFLINE=1 BINARY=$(YUMEN) scripts/api-fuzz.sh 30 $(SEED)

conformance: build ## h2spec, HTTP/3, WebSockets, gRPC interop, a TLS scanner; known failures are listed in conformance/ (ARGS="grpc-tls")
	@scripts/deps.sh conformance
	@BINARY=$(YUMEN) conformance/run.py $(ARGS)
	@BINARY=$(YUMEN) conformance/tls.sh

# Its programs come from the Go registry and PyPI: where that is out of reach it says so and is left out.
conformance-short: build
	@SKIP_IF_OFFLINE=1 BINARY=$(YUMEN) conformance/run.py
	@BINARY=$(YUMEN) conformance/tls.sh

bench-admin: build ## what configuration costs: PUTs per second, writes under load, churn
	@scripts/deps.sh bench
	@bench/admin.py $(ARGS)

lab-build: ## build the lab's yumen-bench
	$(RELEASE) -p yumen-lab

lab: build lab-build ## run a scenario of the lab (ARGS="connection-close --quick")
	@scripts/deps.sh lab
	@target/release/yumen-bench run $(ARGS)

bench-load: lab-build ## CPU per response of the load generator beside wrk, counts beside h2load
	@scripts/deps.sh bench
	@bench/load.py $(ARGS)

bench: build ## CPU per request beside NGINX and HAProxy (ARGS="--quick --scenarios plain-16,tls")
	@scripts/deps.sh bench conformance
	@bench/bench.py $(ARGS)

clean: ## remove what was built
	$(CARGO) clean
	$(CARGO) clean --manifest-path fuzz/Cargo.toml

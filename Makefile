# SPDX-License-Identifier: BSD-3-Clause

FUZZTIME  ?= 1m
BENCHTIME ?= 1s
BENCH     ?= .
# ROUNDS is how often bench-peers measures everything, OUT the markdown file in which it renews the tables (of 5 rounds or more).
ROUNDS    ?= 5
OUT       ?=
# BUSY=1, for bench-peers, measures beside a process that computes.
BUSY      ?=
# HOST_ONLY=1, for make test, leaves out what runs in the guest, the virtual machine with RDMA devices in its kernel.
HOST_ONLY ?=
# GUEST, for test-guest, is what to run of testbed/suite.list: "[-run PATTERN] [PACKAGE...]", everything if it is empty.
GUEST     ?=
# KERNEL is the guest's: 6.1 (default) or 6.12 of Debian 12, or newest, of Debian 13's backports.
KERNEL    ?=
# SOAK is how long soak-guest takes, SEED what it begins with (empty = chosen and printed).
SOAK      ?= 10m
SEED      ?=
# BASE is the image below the demo's in test-docker.
BASE      ?= scratch

# Go records the version of the working tree in programs, which fails in a clone that belongs to another user.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -buildvcs=false)

ifneq ($(KERNEL),)
export TESTBED_KERNEL := $(KERNEL)
endif

.PHONY: help demo test test-all test-host test-guest test-testbed soak-guest asan check bench bench-peers fuzz test-docker build docker/goverbs

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: build ## run the demo: two processes, every operation, counted and checked
	@bin/goverbs demo $(DEMOFLAGS)

test: test-host ## run every test and check (what they lack is installed by apt; HOST_ONLY=1 leaves out the guest)
ifneq ($(HOST_ONLY),)
	@echo "make test: HOST_ONLY=$(HOST_ONLY) left out make test-guest and make test-testbed: no test has run on kernel rxe and kernel siw"
else
	@$(MAKE) --no-print-directory test-guest test-testbed
endif

test-host:
	@scripts/need.sh cc verbs tshark ps ip
	@echo "make test, on this host: all tests with the race detector and again without (where memory must not be allocated),"
	@echo "each benchmark once, also those of the packages that call C, make check."
	CGO_ENABLED=1 go test -race -shuffle=on ./...
	CGO_ENABLED=0 go test -shuffle=on ./...
	CGO_ENABLED=0 go test -run '^$$' -bench . -benchtime 1x ./...
	CGO_ENABLED=1 go test -run 'Alloc|Conformance//Alloc' -bench . -benchtime 1x ./verbs ./cm ./internal/fakeverbs
	@$(MAKE) --no-print-directory check

test-all: test ## also what takes long: the guest with other kernels, soak-guest, bench-peers, test-docker
	@$(MAKE) --no-print-directory test-guest KERNEL=6.12
	@$(MAKE) --no-print-directory test-guest KERNEL=newest
	@$(MAKE) --no-print-directory soak-guest
	@$(MAKE) --no-print-directory bench-peers
	@$(MAKE) --no-print-directory test-docker

test-guest: ## run the tests of testbed/suite.list on rxe0 and siw0 in a QEMU guest (KERNEL=6.1, GUEST="[-run PATTERN] [PACKAGE...]")
	@scripts/need.sh cc asan verbs tshark ps
	@testbed/suite $(GUEST)

test-testbed: ## test the guest itself: exit statuses, output, files, devices, what ends it
	@scripts/need.sh cc ps
	@testbed/selftest/run

soak-guest: ## mixed traffic on rxe0, siw0 and usiw in the guest, connections that end in every way, kills (SOAK=10m, SEED=)
	@scripts/need.sh cc verbs
	@mkdir -p bin
	CGO_ENABLED=1 go build -o bin/soak ./testbed/soak
	testbed/guest run -t 7200 -- bin/soak -duration $(SOAK) $(if $(SEED),-seed $(SEED))

asan: ## run the tests of verbs and cm with the address sanitizer, over a device that is only C code (internal/fakeverbs)
	@scripts/need.sh asan verbs
	CGO_ENABLED=1 go test -asan -count=1 -shuffle=on ./internal/fakeverbs ./verbs ./cm

check: ## format, shellcheck, vet for linux, darwin and windows, imports, go.mod
	@scripts/need.sh cc verbs shellcheck
	@echo "== gofmt"
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "not formatted by gofmt:" $$files >&2; exit 1; fi
	@scripts/shellcheck.sh
	@scripts/vet.sh
	go test -count=1 ./internal/floors
	go mod tidy -diff

bench: ## run the benchmarks (BENCH=pattern, BENCHTIME=1s)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...

bench-peers: ## compare with bare TCP, libfabric and UCX (ROUNDS=5, BUSY=1, OUT=file for the tables as markdown)
	@scripts/need.sh cc fi_pingpong ucx_perftest
	@mkdir -p bin
	CGO_ENABLED=0 go build -o bin/peers ./bench/peers
	CGO_ENABLED=0 go test -c -o bin/siw.test ./siw
	gcc -O2 -Wall -o bin/pingpong bench/tcp/pingpong.c
	@bin/peers -rounds $(ROUNDS) $(if $(BUSY),-busy) $(if $(OUT),-out '$(OUT)')

fuzz: ## run every fuzz target for FUZZTIME (default 1m) each
	@scripts/fuzz.sh $(FUZZTIME)

test-docker: docker/goverbs ## run the demo's two halves in two containers (as root: installs and starts what it lacks)
	@BASE='$(BASE)' docker/test.sh

build: ## build bin/goverbs, with the kernel's RDMA devices if a C compiler is there
	@scripts/build.sh

docker/goverbs:
	@echo "building docker/goverbs" >&2
	@CGO_ENABLED=0 GOOS=linux go build -ldflags='-s -w' -o $@ ./cmd/goverbs

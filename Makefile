# SPDX-License-Identifier: BSD-3-Clause

FUZZTIME  ?= 1m
BENCHTIME ?= 1s
BENCH     ?= .
# ROUNDS, for bench-peers, is the number of measurements of each subject. OUT is a markdown file whose tables it replaces,
# which takes 5 rounds or more.
ROUNDS    ?= 5
OUT       ?=
# BUSY=1, for bench-peers, runs a process that uses a processor all the time beside the measurements.
BUSY      ?=
# HOST_ONLY=1, for make test and make test-programs, leaves out the tests in the guest, the virtual machine with RDMA devices in
# its kernel.
HOST_ONLY ?=
# GUEST, for test-guest, selects lines of testbed/suite.list: "[-run PATTERN] [PACKAGE...]"; empty selects all.
GUEST     ?=
# KERNEL is the kernel of the guest: 6.1 (default) or 6.12 of Debian 12, or newest, from the backports of Debian 13.
KERNEL    ?=
# SOAK is how long soak-guest runs, SEED the seed of its random numbers (empty = chosen and printed).
SOAK      ?= 10m
SEED      ?=
# PROGRAMS, for test-programs: all pairs of testbed/programs/pairs.list, here and in the guest; quick, a part, here only; or
# the name of one, here only.
PROGRAMS  ?= all
# SINCE, for quick, is the revision to compare with; empty = the last commit.
SINCE     ?=
# PARTS, for test-all, are the targets that it runs; empty = all. RESUME=1 leaves out those that passed since the sources changed.
PARTS     ?=
RESUME    ?=
# BASE is the image on which test-docker builds the image of the demo.
BASE      ?= scratch

# LONG are the packages whose tests take longest. They begin first, so that the others run beside them.
LONG       = ./usiw ./cm ./cmd/goverbs/internal/demo
# PLAIN are the packages that make test also tests without the race detector and without cgo: allocations are counted there, some
# tests do more, and the program is linked without C. Other commands, examples and suites do the same in both runs (the tests of a
# command start a program without the race detector in both), so only make test-plain, a part of make test-all, runs them again.
# TestPlain of internal/floors fails if a package is missing.
PLAIN      = ./usiw/... ./cm ./verbs ./ext ./rsocket ./compat/... ./internal/... ./cmd/goverbs/internal/cli \
	./cmd/goverbs/internal/devices ./cmd/goverbs/internal/rping ./cmd/goverbs/internal/version
# ALLOC are the packages that need cgo for tests of what must not be allocated.
ALLOC      = ./verbs ./cm ./internal/fakeverbs ./internal/forward ./compat/ibcompat
# SELFTEST, for test-testbed, are parts of testbed/selftest; empty = all.
SELFTEST  ?=

# By default Go records the version of the working tree in programs, which fails in a clone that belongs to another user.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -buildvcs=false)

ifneq ($(KERNEL),)
export TESTBED_KERNEL := $(KERNEL)
endif

.PHONY: kernel-siw kernel-siw-deb test-dkms test-matrices test-kernel-siw soak-kernel-siw harm-kernel-siw test-kernel-siw-sanitized test-kernel-siw-rules help demo quick test test-all test-host test-plain test-guest test-bridge test-testbed test-programs soak-guest asan check bench bench-peers bench-guest fuzz test-docker build preload docker/goverbs docker/programs

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: build ## run the demo: two processes, every operation, counted and checked
	@bin/goverbs demo $(DEMOFLAGS)

quick: ## format, vet and quick tests of what changed since the last commit, and of what depends on it (SINCE=REVISION)
	@scripts/quick.sh $(SINCE)

test: test-host ## run every test and check (installs with apt what is missing; HOST_ONLY=1 leaves out the guest)
ifneq ($(HOST_ONLY),)
	@echo "make test: HOST_ONLY=$(HOST_ONLY) left out make test-guest and make test-testbed: no test has run on kernel rxe and kernel siw"
else
	@$(MAKE) --no-print-directory test-guest
	@$(MAKE) --no-print-directory test-testbed SELFTEST='usage ordinary results'
endif

test-host:
	@scripts/need.sh cc verbs tshark ps ip curl zsh fish
	@echo "make test, on this host: all tests with the race detector; again without it the packages of which something is left out or"
	@echo "not counted with it, some with one processor too; each benchmark once; make check, which includes go vet for all of these."
	CGO_ENABLED=1 go test -vet=off -timeout 30m -race -shuffle=on $(LONG) ./...
	CGO_ENABLED=0 go test -vet=off -timeout 30m -parallel 8 -shuffle=on $(PLAIN) # many tests only wait
	CGO_ENABLED=0 go test -vet=off -timeout 30m -short -parallel 8 -shuffle=on -cpu 1 ./usiw ./cm ./compat/ibcompat ./rsocket # which goroutine does what
	CGO_ENABLED=0 go test -vet=off -run '^$$' -bench . -benchtime 1x $$(scripts/having.sh Benchmark)
	CGO_ENABLED=1 go test -vet=off -run 'Alloc|(Conformance|VerbsKernel)//Alloc' -bench . -benchtime 1x $(ALLOC)
	@$(MAKE) --no-print-directory check

test-plain: ## run all tests without cgo and without the race detector, also those that make test runs with it only
	@scripts/need.sh tshark ps ip curl zsh fish
	CGO_ENABLED=0 go test -timeout 30m -parallel 8 -shuffle=on ./...

test-all: ## run every test there is, for hours, and print a table of results (PARTS="test-bridge ...": some; RESUME=1: what has not passed yet)
	@RESUME='$(RESUME)' scripts/test-all.sh $(PARTS)

test-guest: ## run the tests of testbed/suite.list on rxe0 and siw0 in a QEMU guest (KERNEL=6.1, GUEST="[-run PATTERN] [PACKAGE...]")
	@scripts/need.sh cc asan verbs tshark ps curl dtestx $(if $(filter 6.12,$(KERNEL)),iperf NPtcp redis-server iperf3 ssh sshd)
	@testbed/suite $(GUEST)

test-matrices: ## compare every cell of the matrix of ib: devices with what the guest does, for half an hour (KERNEL=6.1)
	@scripts/need.sh cc verbs tshark ps
	@TESTBED_LIST=testbed/matrices.list testbed/suite $(GUEST)

test-bridge: ## run examples/rsockets-bridge with Redis, iperf3, OpenSSH, 1,000 connections and hostile peers on the user-space RNIC
	@scripts/need.sh redis-server iperf3 ssh sshd
	GOVERBS_TEST_LONG=1 CGO_ENABLED=0 go test -count=1 -timeout 40m -run '^TestLong' ./examples/rsockets-bridge

test-programs: preload ## run programs of Debian, as they are, on the user-space RNIC: goverbs run (PROGRAMS=quick: a part)
	@scripts/need.sh cc rping ib_send_bw ibv_devinfo fi_pingpong tcpdump $(if $(filter quick,$(PROGRAMS)),,dtest fio qperf)
	GOVERBS_TEST_COMMAND='$(CURDIR)/bin/goverbs' GOVERBS_TEST_PROGRAMS='$(PROGRAMS)' \
		go test -count=1 -timeout 60m -v -run '^TestUser$$' ./testbed/programs
ifeq ($(PROGRAMS)$(HOST_ONLY),all)
	TESTBED_LIST=testbed/programs/guest.list testbed/suite
endif

test-testbed: ## test the guest itself: exit statuses, output, files, devices, how it ends (SELFTEST="usage ordinary": some parts)
	@scripts/need.sh cc ps
	@testbed/selftest/run $(SELFTEST)

soak-guest: ## run mixed traffic on rxe0, siw0 and usiw in the guest; end connections in every way, kill processes (SOAK=10m, SEED=)
	@scripts/need.sh cc verbs
	@mkdir -p bin
	CGO_ENABLED=1 go build -o bin/soak ./testbed/soak
	testbed/guest run -t 7200 -- bin/soak -duration $(SOAK) $(if $(SEED),-seed $(SEED))

kernel-siw: ## build siw with RFC 7306 for a kernel of the guest, as bin/kernel/siw-KERNEL.ko (KERNEL=6.1)
	@kernel/siw-7306/build bin/kernel/siw-$(or $(KERNEL),6.1).ko

kernel-siw-deb: ## make the package usiw-7306-dkms for Debian, bin/kernel/siw-7306-dkms.deb
	@kernel/siw-7306/deb bin/kernel/siw-7306-dkms.deb

test-dkms: kernel-siw-deb ## install, build, look at and remove that package in a tree of Debian 12 (as root)
	@kernel/siw-7306/dkms/test bin/kernel/siw-7306-dkms.deb

test-kernel-siw: kernel-siw ## run the tests of kernel/siw-7306/suite.list in a guest whose siw has RFC 7306 (KERNEL=6.1, GUEST= as test-guest)
	@scripts/need.sh cc verbs tshark ps
	@TESTBED_LIST=kernel/siw-7306/suite.list TESTBED_MODULE=bin/kernel/siw-$(or $(KERNEL),6.1).ko testbed/suite $(GUEST)

soak-kernel-siw: kernel-siw ## soak-guest with siw0 of siw with RFC 7306, and usiw (KERNEL=6.1, SOAK=10m, SEED=)
	@scripts/need.sh cc verbs
	CGO_ENABLED=1 go build -o bin/soak ./testbed/soak
	testbed/guest run -t 7200 -- kernel/siw-7306/in-guest bin/kernel/siw-$(or $(KERNEL),6.1).ko bin/soak -devices usiw,siw0 -duration $(SOAK) $(if $(SEED),-seed $(SEED))

harm-kernel-siw: kernel-siw ## ten minutes of a program that scribbles over its rings, and of a fuzzing peer, with siw with RFC 7306 (KERNEL=6.1)
	@scripts/need.sh cc verbs tshark ps
	@TESTBED_LIST=kernel/siw-7306/harm.list TESTBED_MODULE=bin/kernel/siw-$(or $(KERNEL),6.1).ko testbed/suite

test-kernel-siw-sanitized: ## those tests on a Linux 6.1 with KASAN and lockdep, which it builds first (for 20 minutes)
	@kernel/siw-7306/sanitized

test-kernel-siw-rules: ## build siw with RFC 7306 without each repair in turn, and see the test of that repair fail (KERNEL=6.1)
	@kernel/siw-7306/mutants

asan: ## run the tests of verbs and cm with the address sanitizer, on a replacement of rdma-core (internal/fakeverbs)
	@scripts/need.sh asan verbs
	CGO_ENABLED=1 go test -asan -count=1 -shuffle=on -skip Alloc ./internal/fakeverbs ./verbs ./cm # the sanitizer allocates

check: ## check format, shell scripts, vet for linux, darwin and windows, imports, go.mod; run examples/grpc-over-rdma
	@scripts/need.sh cc verbs shellcheck
	@echo "== gofmt"
	@files=$$(gofmt -l .) && if [ -n "$$files" ]; then echo "not formatted by gofmt:" $$files >&2; exit 1; fi
	@scripts/shellcheck.sh
	@scripts/vet.sh
	go test -count=1 ./internal/floors
	go mod tidy -diff
	@echo "== examples/grpc-over-rdma, a module of its own"
	cd examples/grpc-over-rdma && go vet ./... && go test -count=1 -v ./... && go mod tidy -diff

bench: ## run the benchmarks (BENCH=pattern, BENCHTIME=1s)
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...

bench-peers: preload ## compare with bare TCP, libfabric and UCX (ROUNDS=5, BUSY=1, OUT=file for the tables as markdown)
	@scripts/need.sh cc fi_pingpong ucx_perftest ib_send_bw qperf
	@mkdir -p bin
	CGO_ENABLED=0 go build -o bin/peers ./bench/peers
	CGO_ENABLED=0 go test -c -o bin/usiw.test ./usiw
	CGO_ENABLED=1 go test -c -o bin/ibcompat.test ./compat/ibcompat
	gcc -O2 -Wall -o bin/pingpong bench/tcp/pingpong.c
	@bin/peers -rounds $(ROUNDS) $(if $(BUSY),-busy) $(if $(OUT),-out '$(OUT)')

bench-guest: ## compare package rsocket with rstream of librdmacm on rxe0 and siw0 of the guest (ROUNDS=5, OUT=file for the tables, CLOCK=tsc|hpet of the guest)
	@scripts/need.sh cc verbs rstream
	@mkdir -p bin/guest/bench
	CGO_ENABLED=1 go build -o bin/guest/peers ./bench/peers
	@rm -f bin/guest/bench/tables.md
	TESTBED_CLOCK=$(or $(CLOCK),tsc) testbed/guest run -t 3600 -o bin/guest/bench -- sh -c \
		'$(if $(OUT),cp "$(OUT)" "$$BED_OUT/tables.md" && )bin/guest/peers -kernel rxe0@10.78.0.1,siw0@10.77.0.1 -rounds $(ROUNDS)$(if $(OUT), -out "$$BED_OUT/tables.md")'
	$(if $(OUT),cp bin/guest/bench/tables.md '$(OUT)')

fuzz: ## run every fuzz target for FUZZTIME (default 1m) each
	@scripts/fuzz.sh $(FUZZTIME)

test-docker: docker/goverbs docker/programs ## run the demo, and a program of Debian by goverbs run, in two containers (as root: installs and starts a container engine if there is none)
	@BASE='$(BASE)' docker/test.sh

build: ## build bin/goverbs, with the RDMA devices of the kernel if there is a C compiler
	@scripts/build.sh

preload: build ## build bin/goverbs and the libraries with which goverbs run runs programs of libibverbs and librdmacm
	@scripts/need.sh cc verbs
	@scripts/preload.sh

docker/goverbs:
	@echo "building docker/goverbs" >&2
	@CGO_ENABLED=0 GOOS=linux go build -ldflags='-s -w' -o $@ ./cmd/goverbs

docker/programs: docker/goverbs preload
	@scripts/need.sh rping ib_send_bw ibv_devinfo
	@docker/programs.sh $@

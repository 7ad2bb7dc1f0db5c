# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# vmexec under go test: environment, exit status, coverage and profiles.
vmexec() {
	cp -r "$selftest/testdata/module" "$work/module"
	printf 'module module\n\ngo 1.25.0\n' >"$work/module/go.mod"
	status "vmexec" 0 go_test
	says "vmexec" 'coverage: 100.0% of statements' "$work/stdout"
	says "vmexec" '^module/module.go:.* 1 1$' "$work/cover.out"
	holds "a profile" test -s "$work/module/cpu.out"
	status "vmexec with a test that fails" 1 go_test GOVERBS_FAIL=1
	says "vmexec with a test that fails" 'GOVERBS_FAIL is set' "$work/stdout"
}

# go_test [VAR=V...] runs the module's test in the guest.
go_test() {
	cd "$work/module" && env -u GOVERBS_TEST_REQUIRE GOFLAGS= GOVERBS_ANY="a b" GOTRACEBACK=all OTHER=1 "$@" \
		go test -count=1 -exec "$testbed/vmexec" -p 1 -coverprofile="$work/cover.out" -cpuprofile=cpu.out ./...
}

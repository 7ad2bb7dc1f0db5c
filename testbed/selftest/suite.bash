# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# What suite makes of lines that cannot succeed: here rxe1 is absent.
suite() {
	local devices=./testbed/guesttest/devices
	run_list "a line of the suite that passes" 0 "one $devices norace -test.run=^TestOneHost"
	says "a line that passes" "^ok +$devices -test.run=\\^TestOneHost: 1 passed, 0 skipped" "$work/stdout"

	run_list "lines of the suite that fail" 1 "one $devices norace -test.run=^TestTwoHosts GOVERBS_TEST_REQUIRE=rxe1" \
		"one $devices norace -test.run=^TestTwoHosts" "one $devices norace -test.run=^TestOneHost"
	says "a required device is absent" "^FAIL \\(exit status 1\\) $devices" "$work/stdout"
	says "a required device is absent" 'GOVERBS_TEST_REQUIRE=rxe1: .* no such file' "$work/stdout"
	says "no test ran" "^FAIL \\(no test ran\\) $devices -test.run=\\^TestTwoHosts: 0 passed, 1 skipped" "$work/stdout"
	says "the last line runs nevertheless" "^ok +$devices" "$work/stdout"
	says "the sum" '3 run, 2 failed' "$work/stdout"

	run_list "a list with an unknown option" 1 "one $devices race"
	says "an unknown option" 'race is none of'
	run_list "a list with an unknown number of hosts" 1 "three $devices"
	run_list "a list with a package that is absent" 1 "one ./testbed/guesttest/none"
	run_list "a list with a package without tests" 1 "one ./examples/writeimm norace" "one ./cmd norace"
	run_list "an empty list" 1
}

# run_list NAME STATUS LINE... runs a list of these lines.
run_list() {
	local name=$1 want=$2
	shift 2
	printf '%s\n' "$@" >"$work/list"
	status "$name" "$want" env TESTBED_LIST="$work/list" TESTBED_BIN="$work/bin" "$testbed/suite"
}

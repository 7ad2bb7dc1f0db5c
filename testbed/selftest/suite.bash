# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# What suite makes of faults of the kernel, of lists that have errors, and of patterns.
suite() {
	local devices=./testbed/guesttest/devices
	# A fault of the kernel that is known, another one, and none.
	local fault="one ./testbed/selftest/testdata/fault norace oops:${TESTBED_KERNEL:-6.1}"
	run_list "a fault that is known" 0 "$fault=oops_init" "one $devices norace -test.run=^TestOneHost"
	says "a fault that is known" '^ok +./testbed/selftest/testdata/fault: .* has a fault in oops_init, as is known' "$work/stdout"
	run_list "a fault that is not the known one" 1 "$fault=siw_init"
	says "a fault that is not the known one" '^FAIL ./testbed/selftest/testdata/fault: exit status 126'
	run_list "a known fault that does not come" 1 "one $devices norace -test.run=^TestOneHost oops:${TESTBED_KERNEL:-6.1}=oops_init"
	says "a known fault that does not come" '^FAIL .*: exit status 0, where'
	run_list "a fault that is known of another kernel" 0 "one $devices norace -test.run=^TestOneHost oops:5.4=oops_init"

	# A fault that comes by chance: the line that failed before it is not forgotten, those behind it run.
	fault="one ./testbed/selftest/testdata/fault norace GOVERBS_TEST_ONCE=$work/bin/log-one-again chance:${TESTBED_KERNEL:-6.1}"
	run_list "a fault by chance" 0 "one $devices norace -test.run=^TestOneHost" "$fault=siw_init,oops_init" \
		"one ./internal/errname norace"
	says "a fault by chance" 'had its fault in oops_init, which comes by chance: line 2 of the 3 runs again' "$work/stdout"
	says "the lines behind a fault by chance" '^ok +./internal/errname' "$work/stdout"
	run_list "a failure before a fault by chance" 1 "one $devices norace -test.run=^TestTwoHosts" "$fault=oops_init"
	says "the line of a fault by chance" '^ok +./testbed/selftest/testdata/fault' "$work/stdout"
	run_list "a fault by chance, twice" 1 "one ./testbed/selftest/testdata/fault norace chance:${TESTBED_KERNEL:-6.1}=oops_init"
	run_list "another fault than by chance" 1 "$fault=siw_init"

	run_list "a line for another kernel" 0 "one ./testbed/selftest/testdata/fault norace kernel:5.4" \
		"one $devices norace kernel:${TESTBED_KERNEL:-6.1} -test.run=^TestOneHost"
	says "a line for this kernel" "^ok +$devices" "$work/stdout"
	says "no other line" '1 run, 0 failed' "$work/stdout"

	run_list "a list with an unknown option" 1 "one $devices race"
	says "an unknown option" 'race is none of'
	run_list "a list with an unknown number of hosts" 1 "three $devices"
	run_list "a list with a package that is absent" 1 "one ./testbed/guesttest/none"
	run_list "a list with a package without tests" 1 "one ./examples/writeimm norace" "one ./cmd norace"
	run_list "an empty list" 1

	local names=./internal/errname
	list "one $devices norace -test.run=^TestOneHost" "one $names norace"
	run_suite "a pattern that no test matches" 1 -run '^TestNobody$'
	says "a pattern that no test matches" '-run \^TestNobody\$: no test ran'
	run_suite "a pattern that only a test matches which is skipped" 1 -run '^TestTwoHosts$' "$devices"
	says "a test that is skipped" '-run \^TestTwoHosts\$: no test ran'
	run_suite "a pattern that tests of one line match" 0 -run '^TestOneHost$'
	run_suite "a package that is not in the list, beside one that is" 1 "$names" ./testbed/guesttest/suite
	says "a package that is not in the list" 'no line for ./testbed/guesttest/suite'
}

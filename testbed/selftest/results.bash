# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# Whether suite reports what passes, what fails, and that nothing ran: what every result of a test in the guest depends on.
results() {
	local devices=./testbed/guesttest/devices # rxe1 is absent
	run_list "a line of the suite that passes" 0 "one $devices norace -test.run=^TestOneHost"
	says "a line that passes" "^ok +$devices -test.run=\\^TestOneHost: 1 passed, 0 skipped" "$work/stdout"

	run_list "lines of the suite that fail" 1 "one $devices norace -test.run=^TestTwoHosts GOVERBS_TEST_REQUIRE=rxe1" \
		"one $devices norace -test.run=^TestTwoHosts" "one $devices norace -test.run=^TestOneHost"
	says "a required device is absent" "^FAIL \\(exit status 1\\) $devices" "$work/stdout"
	says "a required device is absent" 'GOVERBS_TEST_REQUIRE=rxe1: .* no such file' "$work/stdout"
	says "no test ran" "^FAIL \\(no test ran\\) $devices -test.run=\\^TestTwoHosts: 0 passed, 1 skipped" "$work/stdout"
	says "the last line runs nevertheless" "^ok +$devices" "$work/stdout"
	says "the sum" '3 run, 2 failed' "$work/stdout"
}

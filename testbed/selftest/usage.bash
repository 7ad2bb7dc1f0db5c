# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# Invalid command lines of guest: status 2 and the usage, and nothing is started.
usage() {
	local arguments
	for arguments in "" "what" "setup now" "clean it" "run" "run --" "run -Z true" "run -t" "run -t 0 true" "run -t 1m true" \
		"run -m x true" "run -e 1A=b true" "run -e =b true" "run -2"; do
		status "guest $arguments" 2 "$guest" $arguments
		says "guest $arguments" '^usage: testbed/guest'
		same "guest $arguments: stdout" "" "$(cat "$work/stdout")"
	done
	status "a kernel that there is not" 2 env TESTBED_KERNEL=5.4 "$guest" setup
	says "a kernel that there is not" 'TESTBED_KERNEL=5.4: none of 6.1, 6.12, newest'
	status "a clock that there is not" 2 env TESTBED_CLOCK=jiffies "$guest" run true
	says "a clock that there is not" 'TESTBED_CLOCK=jiffies: none of hpet, tsc'
	status "guest --help" 0 "$guest" --help
}

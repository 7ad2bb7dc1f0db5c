# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# The ways in which a run can end, each with its exit status and reason.
endings() {
	status "no such command" 127 "$guest" run -n -- no-such-command
	says "no such command" '^guest: no-such-command: command not found'
	status "kill -9 in a guest without devices" 137 \
		"$guest" run -n -- bash -c 'test ! -e /sys/class/infiniband/rxe0 && kill -9 $$'
	status "no such directory" 125 run_lost
	says "no such directory" 'no directory .* in the guest'

	status "time limit" 124 "$guest" run -n -t 30 -- sh -c 'echo begun; sleep 300'
	says "time limit" '^guest: time limit of 30 s'
	same "output before the time limit" begun "$(cat "$work/stdout")"

	status "panic" 125 "$guest" run -n -- sh -c 'echo c >/proc/sysrq-trigger; sleep 100'
	says "panic" 'Kernel panic - not syncing: sysrq triggered crash'

	status "oops" 126 "$guest" run -n -- sh -c "modprobe oops; sleep 100"
	says "oops" 'kernel BUG at .*oops.c'
	# A fault that the kernel survives (here only a line in its log), and lines that resemble one.
	status "oops that is survived" 126 "$guest" run -n -- \
		sh -c 'echo "<3>BUG: scheduling while atomic" >/dev/kmsg; exit 3'
	says "oops that is survived" 'BUG: scheduling while atomic'
	status "harmless lines, and the kernel's log" 3 "$guest" run -n -k -- sh -c 'echo "<4>WARNING: DEBUG: none" >/dev/kmsg
		echo "<6>traps: program[1] general protection fault ip:1 sp:2 error:0 in program" >/dev/kmsg; exit 3'
	says "the kernel's log" 'Linux version'
	says "the kernel's log" 'WARNING: DEBUG: none'
}

# run_lost runs the guest from a directory that does not exist in the guest.
run_lost() {
	local directory got=0
	directory=$(mktemp -d -p /run)
	cd "$directory" || return
	"$guest" run -n -- true || got=$?
	rmdir "$directory"
	return $got
}

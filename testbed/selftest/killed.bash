# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# Only one guest runs at once, and nothing is left of a run that is killed.
killed() {
	kill_run INT 130
	kill_run KILL 137
	kill_run TERM 143 second_run
	kill_qemu
	crash_qemu
}

# kill_run SIGNAL STATUS [second_run] kills a run while another one waits.
kill_run() {
	local signal=$1 run second='' got=0
	echo "   SIG$signal"
	rm -f "$work/up" "$work/second" # of an earlier run: the next one opens them when it gets a processor
	# By default a background process ignores INT.
	env --default-signal=INT "$guest" run -n -- sh -c 'echo up; sleep 100' >"$work/up" 2>"$work/stderr" &
	run=$!
	holds "SIG$signal: the guest starts" appears up "$work/up"
	if [ -n "${3-}" ]; then
		"$guest" run -n -- echo second >"$work/stdout" 2>"$work/second" &
		second=$!
		holds "a second run waits" appears "waiting for another guest" "$work/second"
	fi
	kill -"$signal" "$run"
	wait "$run" 2>/dev/null || got=$?
	same "SIG$signal: exit status" "$2" "$got"
	if [ -n "$second" ]; then
		got=0
		wait "$second" || got=$?
		same "the second run's exit status" 0 "$got"
		same "the second run's output" second "$(cat "$work/stdout")"
	fi
	# QEMU holds the lock too.
	holds "SIG$signal: QEMU ends" flock -w 10 "$caches/lock" true
}

# kill_qemu kills QEMU, as the kernel does when memory runs out.
kill_qemu() {
	local run timeout got=0
	echo "   SIGKILL for QEMU"
	rm -f "$work/up"
	"$guest" run -n -- sh -c 'echo up; sleep 100' >"$work/up" 2>"$work/stderr" &
	run=$!
	holds "the guest starts" appears up "$work/up"
	timeout=$(pgrep -P "$run" -x timeout)
	pkill -KILL -P "$timeout" -f qemu-system
	wait "$run" || got=$?
	same "QEMU killed: exit status" 125 "$got"
	says "QEMU killed" '^guest: the guest died'
}

# crash_qemu crashes QEMU while the guest boots, which starts QEMU again, and while a command runs,
# which means that the guest died.
crash_qemu() {
	local run got=0
	echo "   SIGSEGV for QEMU"
	rm -f "$work/up"
	"$guest" run -n -- sh -c 'echo up; sleep 100' >"$work/up" 2>"$work/stderr" &
	run=$!
	holds "QEMU starts" segv "$run"
	holds "the guest starts again" appears up "$work/up"
	says "QEMU crashed" '^guest: QEMU crashed before the command began'
	holds "QEMU runs" segv "$run"
	wait "$run" || got=$?
	same "QEMU crashed: exit status" 125 "$got"
}

# segv crashes the QEMU of a run once there is one.
segv() {
	timeout 60 sh -c 'until t=$(pgrep -P "$0" -x timeout) && pkill -SEGV -P "$t" -f qemu-system; do sleep 0.1; done' "$1"
}

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # the variables of ../guest

# One run of the guest. Two directories of this machine are writable in the guest: $BED_OUT, and one
# with the files of the run:
#
#	conf, env     for ../init/stage2: what to run, and its environment
#	stdout, stderr, status    the results
#	began         exists once the command was started
#	console, dmesg, qemu      for debugging
#
# The run uses files because they arrive complete and unaltered. A serial line would mix the output
# with kernel messages, and a virtio port may lose the end when the machine powers off.

# faults matches lines of the kernel log that make a run fail, whatever else happened. (A protection
# fault of a program has no comma.)
faults='\<BUG:|Oops:|general protection fault, |kernel BUG at|KASAN:|KFENCE:'

run() {
	local net=one limit=300 memory=2048 out='' klog='' option variables=()
	while getopts :2nkt:m:o:e: option; do
		case $option in
		2) net=two ;;
		n) net=none ;;
		k) klog=1 ;;
		t) limit=$(number -t "$OPTARG") ;;
		m) memory=$(number -m "$OPTARG") ;;
		o) out=$OPTARG ;;
		e)
			[[ ${OPTARG%%=*} =~ ^[A-Za-z_][A-Za-z_0-9]*$ ]] || misuse "-e $OPTARG: no name of a variable"
			variables+=("$OPTARG")
			;;
		:) misuse "-$OPTARG lacks its argument" ;;
		*) misuse "no option -$OPTARG" ;;
		esac
	done
	shift $((OPTIND - 1))
	[ $# -gt 0 ] || misuse "no command to run"

	lock
	setup
	share=$cache/run # the lock is held
	rm -rf "$share"
	trap 'rm -rf "$share"' EXIT
	mkdir -p "$share/out"
	: >"$share/stdout"
	: >"$share/stderr"
	: >"$share/console"
	cp "$testbed/init/stage2" "$testbed"/init/net-* "$share/"
	if [ -n "$out" ]; then
		mkdir -p "$out"
		out=$(readlink -f "$out")
	else
		out=$share/out
	fi
	{
		printf 'kernel=%q modules=%q net=%q directory=%q\n' "$kernel" "$cache/kernel/lib/modules" "$net" "$PWD"
		printf 'command=('
		printf '%q ' "$@"
		echo ')'
	} >"$share/conf"
	environment "${variables[@]}" >"$share/env"
	boot "$limit" "$memory" "$out"
	# QEMU 7.2 sometimes crashes while an emulated guest with several processors boots
	# (memory_region_dispatch_write).
	for _ in 1 2; do
		[ "$ended" -eq 139 ] && [ ! -e "$share/began" ] || break
		say "QEMU crashed before the command began; it is started again"
		: >"$share/console"
		boot "$limit" "$memory" "$out"
	done
	finish "$limit" "$klog"
}

# number OPTION TEXT prints TEXT if it is a positive number.
number() {
	[[ $2 =~ ^[1-9][0-9]*$ ]] || misuse "$1 $2: not a positive number"
	echo "$2"
}

# environment VAR[=V]... prints the variables as shell code.
environment() {
	local variable
	printf 'export PATH=%q HOME=%q\n' "$PATH" "$HOME"
	for variable in "$@"; do
		if [[ $variable == *=* ]]; then
			printf 'export %s=%q\n' "${variable%%=*}" "${variable#*=}"
		elif [ -n "${!variable+set}" ]; then
			printf 'export %s=%q\n' "$variable" "${!variable}"
		fi
	done
}

# boot LIMIT MEMORY OUT runs QEMU until it exits and copies the command's output. It sets $ended to
# the exit status, and $began to the time when the command started.
boot() {
	local accel machine cpu append tails=()
	append="console=ttyS0 loglevel=4 panic=-1 oops=panic nowatchdog mitigations=off random.trust_cpu=on"
	accel=${TESTBED_ACCEL:-$(accelerator)}
	case $accel in
	tcg*)
		cpu=max,la57=off # one level of page tables less
		# On a busy machine the kernel would take the emulated timer for broken and stop.
		append+=" no_timer_check"
		# On a busy machine the kernel also mismeasures the processor's counter, and its clock is
		# then wrong.
		case $clock in
		hpet) append+=" tsc=unstable" ;;
		tsc) append+=" tsc=reliable" ;;
		esac
		;;
	*) cpu=host ;;
	esac
	# shellcheck disable=SC2054 # QEMU's commas
	machine=(-M pc -accel "$accel" -cpu "$cpu" -m "$2" -smp "${TESTBED_CPUS:-$(cpus)}"
		-nodefaults -no-reboot -nic none -display none -monitor none -device virtio-rng-pci
		-serial "file:$share/console" -kernel "$cache/vmlinux" -initrd "$cache/initramfs" -append "$append"
		-virtfs local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap
		-virtfs local,path="$share",mount_tag=share,security_model=none,multidevs=remap
		-virtfs local,path="$3",mount_tag=out,security_model=none,multidevs=remap)
	# QEMU exits when this process exits, for whatever reason.
	began=$SECONDS
	setpriv --pdeathsig TERM timeout -k 5 "$1" setpriv --pdeathsig KILL \
		qemu-system-x86_64 "${machine[@]}" </dev/null >"$share/qemu" 2>&1 &
	qemu=$!
	trap 'stop 130' INT
	trap 'stop 143' TERM
	trap 'stop 129' HUP
	tail -c +1 -s 0.05 -f --pid="$qemu" "$share/stdout" {lock}>&- 2>/dev/null &
	tails+=($!)
	tail -c +1 -s 0.05 -f --pid="$qemu" "$share/stderr" {lock}>&- >&2 2>/dev/null &
	tails+=($!)
	ended=0
	wait "$qemu" || ended=$?
	wait "${tails[@]}" || true
	trap - INT TERM HUP
}

# stop STATUS kills QEMU and exits.
stop() {
	trap '' INT TERM HUP
	kill "$qemu" 2>/dev/null || true
	wait "$qemu" || true
	exit "$1"
}

# finish LIMIT KLOG exits with the status of the run.
finish() {
	local status=''
	[ ! -e "$share/status" ] || status=$(cat "$share/status")
	if [ -n "$2" ]; then
		echo "--- the guest's kernel log" >&2
		cat "$share/dmesg" >&2 2>/dev/null || tr -d '\r' <"$share/console" >&2
	fi
	if grep -qsE "$faults" "$share/dmesg" "$share/console"; then
		say "a fault in the guest's kernel:"
		grep -hsE -B 40 -A 30 "$faults" "$share/dmesg" "$share/console" | tr -d '\r' >&2 || true # one of them may be absent
		exit 126
	fi
	if [ -n "$status" ]; then
		exit "$status"
	fi
	# 137 is also the status of a QEMU killed by this or another process.
	if [ "$ended" -eq 124 ] || { [ "$ended" -eq 137 ] && [ $((SECONDS - began)) -ge "$1" ]; }; then
		say "time limit of $1 s"
		exit 124
	fi
	cat "$share/qemu" >&2
	say "the guest died; the end of its console:"
	# Everything from the panic on: the trace may be long.
	{ sed -n '/Kernel panic/,$p' "$share/console" | grep . || tail -n 40 "$share/console"; } | tr -d '\r' >&2
	exit 125
}

# accelerator prints kvm if it works. Some virtual machines have a /dev/kvm but no virtualization
# flag of the processor; QEMU would start there and then hang.
accelerator() {
	if [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
		echo kvm
	else
		echo tcg,thread=multi
	fi
}

# cpus prints the guest's number of processors. No test needs more than four.
cpus() {
	local n
	n=$(nproc)
	echo $((n < 4 ? n : 4))
}

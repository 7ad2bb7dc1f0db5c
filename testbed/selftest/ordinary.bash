# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# Everything that a successful run prints, and a command's own exit status.
ordinary() {
	mkdir -p "$work/a directory"
	echo old >"$work/a directory/file"
	status "an ordinary run" 77 run_ordinary
	holds "stdout" cmp <(seq 200000) "$work/stdout"
	holds "stderr" cmp <(seq 300000 301000) "$work/stderr"
	same "its report" "$work/a directory
A=1 B=x=y z EMPTY= HERE=two  words \"\$x\" ABSENT is unset HIDDEN is unset
2: first  one:it's
old
new
removed
rxe0 1: CA
siw0 4: RNIC
unlimited
/lib/modules/$(cat "$cache/kernel/release")/updates/siw.ko
a module
all programs" "$(cat "$work/out dir/report")"
	same "a file of this machine" old "$(cat "$work/a directory/file")"
	same "a large artefact" "$(cat "$work/out dir/sum")" "$(md5sum <"$work/out dir/deep/random")"
	same "the contents of BED_OUT" "deep report sum" "$(cd "$work/out dir" && echo *)"
	holds "nothing is left" test ! -e "$cache/run"
}

run_ordinary() {
	export HERE='two  words "$x"' HIDDEN=1
	unset ABSENT
	cd "$work/a directory" && "$guest" run -t 120 -o "$work/out dir" \
		-e A=1 -e 'B=x=y z' -e EMPTY= -e HERE -e ABSENT -- "$selftest/in-ordinary" 'first  one' "it's"
}

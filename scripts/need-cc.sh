#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause

# Makes sure of the C compiler that go test -race and go vet with cgo need, installing it if it can.
set -eu
works() {
	printf '#include <pthread.h>\n#include <stdlib.h>\nint main(void) { return 0; }\n' |
		${CC:-$(go env CC)} -x c -o /dev/null - 2>/dev/null
}
if works; then
	exit 0
fi
"$(dirname "$0")/apt.sh" "the tests need a C compiler (${CC:-$(go env CC)} with the C library's headers)" gcc libc6-dev
if ! works; then
	echo "${CC:-$(go env CC)} cannot build a C program; unset CC, or name a compiler that works" >&2
	exit 2
fi

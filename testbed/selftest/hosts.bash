# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # the variables of run

# The devices of two hosts, with rping between them in both directions.
hosts() {
	status "two hosts" 0 "$guest" run -2 -t 600 -- "$selftest/in-hosts"
	same "two hosts" "siw 1 to 2: 5
siw 2 to 1: 5
siw over IPv6: 5
rxe 1 to 2: 5
rxe1 received
rxe2 received
rxe 2 to 1: 5
rxe1 received
rxe2 received
rxe1/1 ACTIVE
rxe2/1 ACTIVE
siw1/1 ACTIVE
siw2/1 ACTIVE" "$(cat "$work/stdout")"
}

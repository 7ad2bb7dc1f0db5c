// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package siw_test

// raceEnabled tells whether the race detector is on.
const raceEnabled = true

// SPDX-License-Identifier: BSD-3-Clause

//go:build race

package verbstest

// raceEnabled: the race detector's runtime allocates on its own, so allocations are not counted under it.
const raceEnabled = true

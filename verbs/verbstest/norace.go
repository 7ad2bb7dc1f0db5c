// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package verbstest

// raceEnabled: allocations are counted.
const raceEnabled = false

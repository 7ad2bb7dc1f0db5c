// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package race

// Enabled tells whether the race detector is on.
const Enabled = false

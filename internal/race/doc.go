// SPDX-License-Identifier: BSD-3-Clause

// Package race tells whether the race detector is on, which sees nothing of what C does, allocates
// on its own, and makes everything slower.
package race

// SPDX-License-Identifier: BSD-3-Clause

//go:build unix && !linux

package verbs

// mapHuge fails on systems without huge pages; AllocMR then maps ordinary pages.
func mapHuge(int, int, int) ([]byte, error) { return nil, ErrNotSupported }

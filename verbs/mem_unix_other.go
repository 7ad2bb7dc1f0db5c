// SPDX-License-Identifier: BSD-3-Clause

//go:build unix && !linux

package verbs

// mapHuge is refused where the system has no such request; AllocMR then maps ordinary pages.
func mapHuge(int, int, int) ([]byte, error) { return nil, ErrNotSupported }

// SPDX-License-Identifier: BSD-3-Clause

//go:build unix && !linux

package mapmem

import "errors"

// mapHuge fails on systems without huge pages; Map then maps ordinary pages.
func mapHuge(int, int, int) ([]byte, error) { return nil, errors.ErrUnsupported }

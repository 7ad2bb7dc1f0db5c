// SPDX-License-Identifier: BSD-3-Clause

// Package refusal has the reasons for which listeners of this module, rather than their programs,
// reject a request. The reason travels as the private data of the rejection.
package refusal

import "strings"

// The reasons.
const (
	BacklogFull = "backlog full"
	NotIB       = "an ib: device listens there"
)

// mark is the prefix of such private data. No program sends it by chance.
const mark = "goverbs: "

// Data returns the private data for a reason.
func Data(reason string) []byte { return []byte(mark + reason) }

// Split interprets the private data of a rejection as a reason or as data of the peer's program.
// Data with the mark but an unknown reason belong to the program.
func Split(data []byte) (reason string, program []byte) {
	switch text, ok := strings.CutPrefix(string(data), mark); {
	case !ok:
		return "", data
	// Lower layers may append zeros.
	case strings.TrimRight(text, "\x00") == BacklogFull:
		return BacklogFull, nil
	case strings.TrimRight(text, "\x00") == NotIB:
		return NotIB, nil
	}
	return "", data
}

// SPDX-License-Identifier: BSD-3-Clause

// Package refusal has the reasons for which listeners of this module, not their programs, refuse a
// request. A reason travels as the private data of the refusal.
package refusal

import "strings"

// The reasons.
const (
	BacklogFull = "backlog full"
	NotIB       = "an ib: device listens there"
)

// mark begins such private data, which a program does not send by chance.
const mark = "goverbs: "

// Data is the private data of a refusal.
func Data(reason string) []byte { return []byte(mark + reason) }

// Split takes the private data of a refusal apart. They are a reason, or those of a program. Other
// texts with the mark are a program's.
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

// SPDX-License-Identifier: BSD-3-Clause

package output

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// Printable returns a text of a peer or a device for one line: what is no character to be seen is
// written as \u001b, or as \xff if it is no UTF-8. So the text cannot control a terminal, nor look
// like another line.
func Printable[T ~string | ~[]byte](text T) string { return string(printable(nil, text, false)) }

// printable appends a text, with its lines and tabs if it may have several lines. In JSON it
// changes only what is inside of strings, to what means the same there.
func printable[T ~string | ~[]byte](to []byte, text T, lines bool) []byte {
	for s := string(text); len(s) > 0; {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			to = fmt.Appendf(to, `\x%02x`, s[0])
		case unicode.IsPrint(r), lines && (r == '\n' || r == '\t'):
			to = append(to, s[:n]...)
		case r > 0xffff:
			to = fmt.Appendf(to, `\U%08x`, r)
		default:
			to = fmt.Appendf(to, `\u%04x`, r)
		}
		s = s[n:]
	}
	return to
}

// Sequence is an escape sequence of the command's own, for Print.
type Sequence string

// Print writes texts and Sequences to w. A [Writer] writes nothing else that controls a terminal.
func Print(w io.Writer, parts ...any) {
	var b []byte
	for _, p := range parts {
		if s, ok := p.(Sequence); ok {
			b = append(b, s...)
		} else {
			b = printable(b, fmt.Sprint(p), true)
		}
	}
	if o, ok := w.(*Writer); ok {
		_, _ = o.write(b)
		return
	}
	_, _ = w.Write(b)
}

// needsWork reports whether printable would change a text of several lines.
func needsWork(b []byte) bool {
	return !utf8.Valid(b) ||
		bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
}

// SPDX-License-Identifier: BSD-3-Clause

package output

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// Printable returns text of a peer or a device as part of one line. It escapes characters that are
// not printable (\u001b) and bytes that are not UTF-8 (\xff), so that the text can neither control
// a terminal nor look like another line.
func Printable[T ~string | ~[]byte](text T) string { return string(printable(nil, text, false)) }

// printable appends text with such escapes; if lines is set, newlines and tabs are kept. Applied to
// JSON it changes only the contents of strings, into escapes with the same meaning.
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

// Sequence is an escape sequence that the command itself sends, for Print.
type Sequence string

// Print writes texts and Sequences to w. It is the only way to control a terminal through a
// [Writer].
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

// needsWork reports whether printable would change b, which may have several lines.
func needsWork(b []byte) bool {
	return !utf8.Valid(b) ||
		bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' })
}

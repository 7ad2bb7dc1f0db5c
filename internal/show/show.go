// SPDX-License-Identifier: BSD-3-Clause

package show

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Facts is what is printed of an object.
type Facts struct {
	kind string
	text string      // instead of the attributes, for fmt; "" = the attributes
	list []slog.Attr // nil: there is no object
}

// Of returns the facts of an object of a kind, for example "QP".
func Of(kind string, attrs ...slog.Attr) Facts { return Facts{kind: kind, list: attrs} }

// None returns the facts of nil and of a zero value.
func None(kind string) Facts { return Facts{kind: kind} }

// As returns the facts with a text for fmt in the place of the attributes.
func (f Facts) As(text string) Facts {
	f.text = text
	return f
}

// And returns the facts with more attributes.
func (f Facts) And(attrs ...slog.Attr) Facts {
	f.list = append(f.list, attrs...)
	return f
}

// Hex is an attribute with a number in hexadecimal, as keys and addresses are written.
func Hex[T ~uint8 | ~uint16 | ~uint32 | ~uint64](name string, v T) slog.Attr {
	return slog.String(name, "0x"+strconv.FormatUint(uint64(v), 16))
}

// Text is an attribute with the text of a value, for example of an enum.
func Text(name string, v fmt.Stringer) slog.Attr { return slog.String(name, v.String()) }

// Addr is an attribute with an address, "" for nil.
func Addr(name string, a net.Addr) slog.Attr {
	if a == nil {
		return slog.String(name, "")
	}
	return slog.String(name, a.String())
}

// String returns for example "QP(device=usiw0 qp_num=17 state=RTS)", and "no QP" if there is none.
func (f Facts) String() string {
	switch {
	case f.list == nil:
		return "no " + f.kind
	case f.text != "":
		return f.text
	}
	return f.kind + "(" + list(f.list) + ")"
}

// list writes attributes as package slog's TextHandler does.
func list(attrs []slog.Attr) string {
	var b strings.Builder
	for i, a := range attrs {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(a.Key)
		b.WriteByte('=')
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindGroup:
			b.WriteString("(" + list(v.Group()) + ")")
		default:
			b.WriteString(quoted(v.String()))
		}
	}
	return b.String()
}

// quoted puts a text in quotation marks if one could not see otherwise where it ends.
func quoted(s string) string {
	odd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`"=()`, r) }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// Format implements fmt.Formatter: with every verb it writes the text, with %q in quotation marks.
// Width and flags are those of a string.
func (f Facts) Format(s fmt.State, verb rune) { format(s, verb, f.String()) }

func format(s fmt.State, verb rune, text string) {
	if verb != 'q' {
		verb = 's'
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), text)
}

// LogValue implements slog.LogValuer: a group of the attributes.
func (f Facts) LogValue() slog.Value {
	if f.list == nil {
		return slog.AnyValue(nil)
	}
	return slog.GroupValue(f.list...)
}

// MarshalJSON implements json.Marshaler: an object with the attributes in their order, null if
// there is none.
func (f Facts) MarshalJSON() ([]byte, error) {
	if f.list == nil {
		return []byte("null"), nil
	}
	return appendJSON(nil, f.list)
}

func appendJSON(b []byte, attrs []slog.Attr) ([]byte, error) {
	b = append(b, '{')
	for i, a := range attrs {
		if i > 0 {
			b = append(b, ',')
		}
		name, err := json.Marshal(a.Key)
		if err != nil {
			return nil, err
		}
		b = append(append(b, name...), ':')
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindGroup:
			b, err = appendJSON(b, v.Group())
		default:
			var value []byte
			value, err = json.Marshal(v.Any())
			b = append(b, value...)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// Error is an error that is printed by its text alone, because it has fields that are not for a
// log.
type Error struct{ Err error }

// Format writes the text with every verb.
func (e Error) Format(s fmt.State, verb rune) { format(s, verb, e.Err.Error()) }

// LogValue is the text.
func (e Error) LogValue() slog.Value { return slog.StringValue(e.Err.Error()) }

// MarshalJSON writes the text as a string.
func (e Error) MarshalJSON() ([]byte, error) { return json.Marshal(e.Err.Error()) }

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

// Facts is the printable description of an object.
type Facts struct {
	kind string
	text string      // replaces the attributes for fmt; "" = print the attributes
	list []slog.Attr // nil if there is no object
}

// Of returns the facts of an object of a kind, for example "QP".
func Of(kind string, attrs ...slog.Attr) Facts { return Facts{kind: kind, list: attrs} }

// None returns the facts of nil and of a zero value.
func None(kind string) Facts { return Facts{kind: kind} }

// As returns the facts with a text that replaces the attributes for fmt.
func (f Facts) As(text string) Facts {
	f.text = text
	return f
}

// And returns the facts with additional attributes.
func (f Facts) And(attrs ...slog.Attr) Facts {
	f.list = append(f.list, attrs...)
	return f
}

// Hex returns an attribute with a number in hexadecimal, the usual form of keys and addresses.
func Hex[T ~uint8 | ~uint16 | ~uint32 | ~uint64](name string, v T) slog.Attr {
	return slog.String(name, "0x"+strconv.FormatUint(uint64(v), 16))
}

// Text returns an attribute with the text of a value, for example of an enum.
func Text(name string, v fmt.Stringer) slog.Attr { return slog.String(name, v.String()) }

// Addr returns an attribute with an address, "" for nil.
func Addr(name string, a net.Addr) slog.Attr {
	if a == nil {
		return slog.String(name, "")
	}
	return slog.String(name, a.String())
}

// String returns, for example, "QP(device=usiw0 qp_num=17 state=RTS)", or "no QP" if there is none.
func (f Facts) String() string {
	switch {
	case f.list == nil:
		return "no " + f.kind
	case f.text != "":
		return f.text
	}
	return f.kind + "(" + list(f.list) + ")"
}

// list formats attributes as package slog's TextHandler does.
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

// quoted quotes a text whose end would otherwise be ambiguous.
func quoted(s string) string {
	odd := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`"=()`, r) }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// Format implements fmt.Formatter. Every verb writes the text, %q in quotation marks. Width and
// flags apply as for a string.
func (f Facts) Format(s fmt.State, verb rune) { format(s, verb, f.String()) }

func format(s fmt.State, verb rune, text string) {
	if verb != 'q' {
		verb = 's'
	}
	fmt.Fprintf(s, fmt.FormatString(s, verb), text)
}

// LogValue implements slog.LogValuer. It returns the attributes as a group.
func (f Facts) LogValue() slog.Value {
	if f.list == nil {
		return slog.AnyValue(nil)
	}
	return slog.GroupValue(f.list...)
}

// MarshalJSON implements json.Marshaler. It returns an object with the attributes in order, or null
// if there is none.
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

// Error is an error that prints only its text, because it has fields that do not belong in a log.
type Error struct{ Err error }

// Format writes the text for every verb.
func (e Error) Format(s fmt.State, verb rune) { format(s, verb, e.Err.Error()) }

// LogValue returns the text.
func (e Error) LogValue() slog.Value { return slog.StringValue(e.Err.Error()) }

// MarshalJSON returns the text as a string.
func (e Error) MarshalJSON() ([]byte, error) { return json.Marshal(e.Err.Error()) }

// SPDX-License-Identifier: BSD-3-Clause

package output

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// limited accepts a limited number of bytes.
type limited struct {
	bytes.Buffer
	room   int
	writes int
}

var errFull = errors.New("no room")

func (l *limited) Write(b []byte) (int, error) {
	l.writes++
	n := min(len(b), l.room-l.Len())
	l.Buffer.Write(b[:n])
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

// TestWriter: the first error is reported and sticks, and nothing is written after it.
func TestWriter(t *testing.T) {
	to := &limited{room: 5}
	var told []error
	w := New(to, func(err error) { told = append(told, err) })
	n, err := w.Write([]byte("abc"))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.NoError(t, w.Err())
	require.Empty(t, told)
	n, err = w.Write([]byte("def"))
	require.ErrorIs(t, err, errFull)
	require.Equal(t, 2, n)
	to.room = 100 // as on a full disk after a file is deleted
	n, err = w.Write([]byte("g"))
	require.ErrorIs(t, err, errFull)
	require.Zero(t, n)
	require.ErrorIs(t, w.Err(), errFull)
	require.Equal(t, []error{errFull}, told)
	require.Equal(t, "abcde", to.String())
	require.Equal(t, 2, to.writes)

	w = New(&limited{}, nil)
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, errFull)
}

// TestPrintable: terminal control characters are made visible and have no effect.
func TestPrintable(t *testing.T) {
	for _, c := range []struct{ text, line, lines string }{
		{"Grüße, 世界", "Grüße, 世界", "Grüße, 世界"},
		{"a\x1b[2J\a\x7f\u009b\u202e", `a\u001b[2J\u0007\u007f\u009b\u202e`, `a\u001b[2J\u0007\u007f\u009b\u202e`},
		{"a\n\tb\r", `a\u000a\u0009b\u000d`, "a\n\tb\\u000d"},
		{"\xff\U000e0001", `\xff\U000e0001`, `\xff\U000e0001`},
		{"", "", ""},
	} {
		require.Equal(t, c.line, Printable(c.text))
		require.Equal(t, c.line, Printable([]byte(c.text)))
		var to bytes.Buffer
		w := New(&to, nil)
		n, err := w.Write([]byte(c.text))
		require.NoError(t, err)
		require.Equal(t, len(c.text), n)
		require.Equal(t, c.lines, to.String())
		to.Reset()
		Print(w, Sequence("\x1b[32m"), c.text, Sequence("\r"))
		require.Equal(t, "\x1b[32m"+c.lines+"\r", to.String())
	}
}

// TestNoTerminal: other character devices are not taken for terminals.
func TestNoTerminal(t *testing.T) {
	require.False(t, Terminal(new(bytes.Buffer)))
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	for _, f := range []*os.File{w, null} {
		require.False(t, Terminal(f), f.Name())
		require.False(t, Terminal(New(f, nil)), f.Name())
	}
}

// SPDX-License-Identifier: BSD-3-Clause

package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// qp is a handle.
type qp struct{ name string }

func (q *qp) facts() Facts {
	if q == nil {
		return None("QP")
	}
	return Of("QP", slog.String("device", q.name), slog.Int("num", 7)).And(Hex("key", uint32(0x1f)),
		slog.Any("path", slog.GroupValue(slog.Bool("up", true))), slog.Any("names", []string{"a", "b"}))
}

func (q *qp) Format(s fmt.State, verb rune) { q.facts().Format(s, verb) }
func (q *qp) LogValue() slog.Value          { return q.facts().LogValue() }
func (q *qp) MarshalJSON() ([]byte, error)  { return q.facts().MarshalJSON() }

func TestFormat(t *testing.T) {
	const text = `QP(device=usiw0 num=7 key=0x1f path=(up=true) names="[a b]")`
	q := &qp{"usiw0"}
	for _, verb := range "vsdxXobceEfFgGtU" {
		for _, flags := range []string{"", "+", "#", "-", " "} {
			require.Equal(t, text, fmt.Sprintf("%"+flags+string(verb), q), "%%%s%c", flags, verb)
		}
	}
	require.Equal(t, `"QP(device=a)"`, fmt.Sprintf("%q", Of("QP", slog.String("device", "a"))))
	require.Equal(t, "   QP(n=1)|QP(n=1)   |QP",
		fmt.Sprintf("%10v|%-10s|%.2s", Of("QP", slog.Int("n", 1)), Of("QP", slog.Int("n", 1)),
			Of("QP", slog.Int("n", 1))))
	require.Equal(t, "no QP", fmt.Sprint((*qp)(nil)))
	require.Equal(t, "rnic (usiw)", fmt.Sprint(Of("Device", slog.Int("n", 1)).As("rnic (usiw)")))
	require.Equal(t, "no device", None("device").As("rnic").String())
	require.Equal(t, "*show.qp", fmt.Sprintf("%T", q))
	require.Regexp(t, "^0x[0-9a-f]+$", fmt.Sprintf("%p", q))
}

func TestQuoted(t *testing.T) {
	for in, out := range map[string]string{"": `""`, "usiw0": "usiw0", "a b": `"a b"`, "a=b": `"a=b"`, "x)": `"x)"`,
		"\x1b[2J": `"\x1b[2J"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`, "ü": "ü", "127.0.0.1:7": "127.0.0.1:7"} {
		require.Equal(t, out, quoted(in))
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(map[string]any{"qp": &qp{"a\"\n"}, "none": (*qp)(nil)})
	require.NoError(t, err)
	require.Equal(t, `{"none":null,"qp":{"device":"a\"\n","num":7,"key":"0x1f","path":{"up":true},"names":["a","b"]}}`,
		string(b))
	b, err = json.Marshal(None("QP"))
	require.NoError(t, err)
	require.Equal(t, "null", string(b))
	_, err = json.Marshal(Of("QP", slog.Any("f", func() {})))
	require.Error(t, err)
}

func TestLog(t *testing.T) {
	var text, js bytes.Buffer
	noTime := &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	for _, h := range []slog.Handler{slog.NewTextHandler(&text, noTime), slog.NewJSONHandler(&js, noTime)} {
		slog.New(h).Info("made", "qp", &qp{"usiw0"}, "none", (*qp)(nil))
	}
	require.Equal(t, "level=INFO msg=made qp.device=usiw0 qp.num=7 qp.key=0x1f qp.path.up=true qp.names=\"[a b]\" none=<nil>\n", text.String())
	require.JSONEq(t, `{"level":"INFO","msg":"made","qp":{"device":"usiw0","num":7,"key":"0x1f","path":{"up":true},"names":["a","b"]},"none":null}`, js.String())
}

func TestAttributes(t *testing.T) {
	require.Equal(t, "addr=0x10 key=0xff local=\"\" remote=127.0.0.1:7",
		list([]slog.Attr{Hex("addr", uint64(16)), Hex("key", uint8(255)), Addr("local", nil),
			Addr("remote", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7})}))
}

type refusal struct{ secret []byte }

func (r *refusal) Error() string { return fmt.Sprintf("refused (%d bytes)", len(r.secret)) }

func TestError(t *testing.T) {
	e := Error{&refusal{[]byte("secret")}}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		require.Equal(t, "refused (6 bytes)", fmt.Sprintf(format, e))
	}
	require.Equal(t, `"refused (6 bytes)"`, fmt.Sprintf("%q", e))
	b, err := json.Marshal(e)
	require.NoError(t, err)
	require.Equal(t, `"refused (6 bytes)"`, string(b))
	require.Equal(t, "refused (6 bytes)", e.LogValue().String())
	var r *refusal
	require.True(t, errors.As(e.Err, &r))
}

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// Connection setup between the user-space RNIC and siw, both driven through package cm.

// kernelPrivate is the maximum number of bytes of private data that siw sends with revision 2. It
// accepts 252 and more from its programs, but then writes a wrong length (see TestKernelWraps).
const kernelPrivate = 251

// random returns n random bytes.
func random(n int) []byte {
	b := make([]byte, n)
	fill(b, uint64(n))
	return b
}

// TestPrivateData carries private data of every length in both directions, in the request and in
// the reply.
func TestPrivateData(t *testing.T) {
	needKernel(t)
	for _, n := range []int{0, 1, 2, 3, 4, 56, 128, kernelPrivate} {
		for _, active := range []bool{false, true} {
			l := here.link(t, linkConfig{kernelActive: active, memory: 8192,
				user: cm.ConnParam{PrivateData: random(n)}, kernel: cm.ConnParam{PrivateData: random(max(n-1, 0))}})
			require.Equal(t, string(random(n)), string(l.kernel.id.PrivateData()), "kernel connects: %v", active)
			require.Equal(t, string(random(max(n-1, 0))), string(l.user.id.PrivateData()), "kernel connects: %v",
				active)
			l.user.sends(l.kernel, 8)
		}
	}
}

// TestPrivateDataTooLong: siw terminates a connection whose Request has more than 256 bytes. If its
// own program passes too many, they are refused first.
func TestPrivateDataTooLong(t *testing.T) {
	needKernel(t)
	t.Run("to the kernel", func(t *testing.T) {
		k := kernelSide(t, 4096)
		ln := k.listen(kernelHost)
		for _, n := range []int{253, 508} {
			u := newSide(t, here.nic(t, usiw.Config{}), 4096)
			u.resolve(ln.Addr().String())
			require.Error(t, u.id.Connect(soon(t), u.qp, cm.ConnParam{PrivateData: random(n)}), n)
		}
		u := newSide(t, here.nic(t, usiw.Config{}), 4096)
		u.resolve(ln.Addr().String())
		require.ErrorIs(t, u.id.Connect(soon(t), u.qp, cm.ConnParam{PrivateData: random(509)}), verbs.ErrLimit)
	})
	t.Run("from the kernel", func(t *testing.T) {
		ln := here.listen(t)
		for _, n := range []int{kernelPrivate + 1, 300} {
			k := kernelSide(t, 4096)
			k.resolve(ln.Addr().String())
			require.ErrorIs(t, k.id.Connect(soon(t), k.qp, cm.ConnParam{PrivateData: random(n)}), verbs.ErrLimit, n)
		}
	})
}

// counted returns the private data of the program in testdata/private.
func counted(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// wrapped returns the Request of siw for 252 bytes of private data or more, whose length field has
// only the lower byte.
func wrapped(n int) []byte {
	b := request(flagS, mpa.Rev2, word(4, 4, counted(n)...)...)
	b[18], b[19] = 0, byte(n+4)
	return b
}

// compiled builds the program in testdata/private. Package cm would refuse that much private data.
func compiled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "private")
	command(t, "cc", "-o", path, "testdata/private/private.c", "-lrdmacm", "-libverbs")
	return path
}

// TestKernelWraps: if a program passes 252 bytes or more, siw sends a frame whose length lacks its
// upper bits, followed by all the bytes. The user-space RNIC terminates such a connection and
// continues to serve others.
func TestKernelWraps(t *testing.T) {
	needKernel(t)
	private := compiled(t)
	ask := func(t *testing.T, to net.Addr, n int) *testprogram.Program {
		host, port, err := net.SplitHostPort(to.String())
		require.NoError(t, err)
		return start(t, []string{private, host, port, strconv.Itoa(n)})
	}
	t.Run("bytes", func(t *testing.T) {
		ln := here.listen(t)
		for _, c := range []struct {
			n    int
			want []byte
		}{
			{kernelPrivate, request(flagS, mpa.Rev2, word(4, 4, counted(kernelPrivate)...)...)},
			{252, wrapped(252)}, {253, wrapped(253)}, {254, wrapped(254)}, {255, wrapped(255)},
		} {
			p := ask(t, ln.Addr(), c.n)
			conn, err := ln.Accept()
			require.NoError(t, err)
			r := &raw{t: t, conn: conn}
			require.Equal(t, c.want, r.bytes(len(c.want)), c.n)
			r.quiet()
			require.NoError(t, conn.Close())
			p.Ends(t, 1)
			require.Contains(t, p.Out.String(), "rdma_connect:")
		}
	})
	t.Run("to the user-space RNIC", func(t *testing.T) {
		u := newSide(t, here.nic(t, usiw.Config{}), 4096)
		ln := u.listen(here.host)
		for n := 252; n < 256; n++ {
			p := ask(t, ln.Addr(), n)
			p.Ends(t, 1)
			require.Contains(t, p.Out.String(), "rdma_connect:")
		}
		p := ask(t, ln.Addr(), kernelPrivate)
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.Equal(t, counted(kernelPrivate), req.PrivateData())
		require.NoError(t, req.Reject(nil))
		p.Ends(t, 1)
	})
}

// TestWrappedPrivateData: the user-space RNIC rejects the frame of TestKernelWraps as invalid and
// continues to serve others.
func TestWrappedPrivateData(t *testing.T) {
	ln, err := cm.Listen(soon(t), "127.0.0.1:0", cm.Config{Device: place{}.nic(t, usiw.Config{})})
	require.NoError(t, err)
	defer ln.Close()
	for n := 252; n < 256; n++ {
		r := place{}.dial(t, ln.Addr().String())
		r.write(wrapped(n))
		r.gone()
	}
	r := place{}.dial(t, ln.Addr().String())
	r.write(request(flagS, mpa.Rev2, word(4, 4, 1)...))
	req, err := ln.Accept(soon(t))
	require.NoError(t, err)
	require.Equal(t, []byte{1}, req.PrivateData())
	require.NoError(t, req.Reject(nil))
}

// TestReject: either side rejects the other, with private data of every length.
func TestReject(t *testing.T) {
	needKernel(t)
	for _, active := range []string{"user space", "kernel"} {
		t.Run(active+" connects", func(t *testing.T) {
			for _, n := range []int{0, 1, 56, kernelPrivate} {
				a, b := newSide(t, here.nic(t, usiw.Config{}), 4096), kernelSide(t, 4096)
				host := kernelHost
				if active == "kernel" {
					a, b, host = b, a, here.host
				}
				ln := b.listen(host)
				a.resolve(ln.Addr().String())
				connected := make(chan error, 1)
				go func() { connected <- a.id.Connect(soon(t), a.qp, cm.ConnParam{PrivateData: []byte("please")}) }()
				req, err := ln.Accept(soon(t))
				require.NoError(t, err)
				require.Equal(t, "please", string(req.PrivateData()))
				require.NoError(t, req.Reject(random(n)))
				err = result(t, "Connect", connected)
				require.ErrorIs(t, err, cm.ErrRejected)
				var rejected *cm.RejectedError
				require.ErrorAs(t, err, &rejected)
				require.Equal(t, string(random(n)), string(rejected.PrivateData))
			}
		})
	}
}

// TestEnhancedWordAlways: every Reply of the user-space RNIC to a Request with S has the enhanced
// word, even a rejection. Without it, the kernel's siw oopses.
func TestEnhancedWordAlways(t *testing.T) {
	for _, rtr := range []usiw.Policy{usiw.On, usiw.Off} {
		for _, private := range []int{0, 200} {
			ln, err := cm.Listen(soon(t), "127.0.0.1:0",
				cm.Config{Device: place{}.nic(t, usiw.Config{RTR: rtr}), Backlog: 1})
			require.NoError(t, err)
			// siw's own Request: accepted, rejected by the program, rejected because there is no
			// room, rejected because the listener closes.
			ask := func() *raw {
				r := place{}.dial(t, ln.Addr().String())
				r.write(request(flagS, mpa.Rev2, word(4, 4)...))
				return r
			}
			answered := func(r *raw, flags byte) {
				t.Helper()
				b := r.frame()
				r.conn.Close()
				require.Equal(t, flags|flagS, b[16]&^flagC)
				require.GreaterOrEqual(t, len(b)-mpa.FrameLen, mpa.EnhancedLen, "% x", b)
			}
			accepted := ask()
			req, err := ln.Accept(soon(t))
			require.NoError(t, err)
			u := &side{t: t, ctx: req.Context(), memory: 64}
			u.open()
			u.id, err = req.Accept(soon(t), u.qp, cm.ConnParam{PrivateData: random(private)})
			require.NoError(t, err)
			answered(accepted, 0)
			require.NoError(t, u.id.Close())

			refused := ask()
			req, err = ln.Accept(soon(t))
			require.NoError(t, err)
			done := make(chan error, 1)
			go func() { done <- req.Reject(random(private)) }()
			answered(refused, flagR)
			require.NoError(t, result(t, "Reject", done))

			first, second := ask(), ask()
			ctx, cancel := context.WithTimeout(t.Context(), quietTime)
			<-ctx.Done() // both have arrived, and there is no room for one
			cancel()
			go func() { done <- ln.Close() }()
			answered(first, flagR)
			answered(second, flagR)
			require.NoError(t, result(t, "Listener.Close", done))
		}
	}
}

// TestDepths negotiates every pair of depths with siw. Then both sides post many more Reads than
// may be in progress.
func TestDepths(t *testing.T) {
	needKernel(t)
	for _, active := range []bool{false, true} {
		for _, c := range []struct{ user, kernel int }{{1, 1}, {4, 4}, {16, 16}, {1, 16}, {16, 1}, {4, 16}, {16, 4},
			{16, 3}, {128, 128}} {
			t.Run(fmt.Sprintf("kernel connects %v/%d-%d", active, c.user, c.kernel), func(t *testing.T) {
				l := here.link(t, linkConfig{kernelActive: active, memory: 1 << 16,
					user: depth(c.user, c.user), kernel: depth(c.kernel, c.kernel)})
				ord, ird := l.user.id.Depths()
				kernelORD, kernelIRD := l.kernel.id.Depths()
				// As responder, siw serves more than its program offers if the initiator requests
				// it, and announces its program's ORD.
				wantORD, wantIRD := c.user, min(c.kernel, c.user)
				if active {
					wantORD = min(c.user, c.kernel)
				}
				require.Equal(t, [2]int{wantORD, wantIRD}, [2]int{ord, ird}, "the kernel's are %d and %d", kernelORD,
					kernelIRD)
				for _, d := range [][2]*side{{l.user, l.kernel}, {l.kernel, l.user}} {
					s, from := d[0], d[1]
					fill(from.mem.Bytes()[:1<<15], 5)
					const each, count = 300, 64
					for k := range count {
						s.post(from.at(verbs.SendWR{ID: uint64(k), Opcode: verbs.WRRDMARead,
							SGL: s.sgl(1<<15+k*each, each)}, k*each))
					}
					for k := range count {
						require.EqualValues(t, k, s.ok(s.sent(), verbs.WCRDMARead).ID)
					}
					require.Equal(t, from.mem.Bytes()[:count*each], s.mem.Bytes()[1<<15:][:count*each])
				}
			})
		}
	}
}

// TestNoDepths: a side without depths can neither read nor be read from. Reads are refused before
// anything is sent.
func TestNoDepths(t *testing.T) {
	needKernel(t)
	for _, active := range []bool{false, true} {
		none := depth(cm.None, cm.None)
		l := here.link(t, linkConfig{kernelActive: active, memory: 8192, user: none, kernel: none})
		for _, d := range [][2]*side{{l.user, l.kernel}, {l.kernel, l.user}} {
			ord, ird := d[0].id.Depths()
			require.Equal(t, [2]int{0, 0}, [2]int{ord, ird})
		}
		l.user.sends(l.kernel, 8)
		l.kernel.sends(l.user, 8)
		wc := l.user.run(l.kernel.at(verbs.SendWR{Opcode: verbs.WRRDMARead, SGL: l.user.sgl(0, 8)}, 0))
		require.Equal(t, verbs.WCLocQPOpErr, wc.Status)
	}
}

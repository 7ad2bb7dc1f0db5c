// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// pair is two QPs connected to each other, with 64 bytes of memory on each side; both complete into
// r.cq.
type pair struct {
	rig
	peer object
	mem  [2][]byte
	sge  [2]SGE
	rkey [2]uint32
}

func newPair(t *testing.T, access int) pair {
	t.Helper()
	p := pair{rig: newRig(t, Fake0)}
	Loopback(true)
	p.peer = p.newQP(t)
	for i, qp := range []object{p.qp, p.peer} {
		other := []object{p.peer, p.qp}[i]
		require.NoError(t, qp.modify(stateInit, maskInit))
		require.NoError(t, qp.modifyTo(stateRTR, maskRTR, other.num()))
		require.NoError(t, qp.modify(stateRTS, maskRTS))
		mem, addr := callAlloc(64)
		t.Cleanup(func() { callFree(mem) })
		mr, err := p.pd.regMR(addr, 64, access)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mr.deregMR()) })
		p.mem[i], p.sge[i], p.rkey[i] = mem, SGE{addr, 64, mr.lkey()}, mr.rkey()
	}
	return p
}

func (p pair) poll(t *testing.T) []WC {
	t.Helper()
	wcs, err := p.cq.poll(16)
	require.NoError(t, err)
	return wcs
}

const (
	allAccess = 1 | 2 | 4 | 8

	statusLocProt   = 4
	statusRemInvReq = 9
	statusRemAccess = 10
	statusLocLen    = 1
	statusRetryExc  = 12
)

func TestLoopbackMovesData(t *testing.T) {
	p := newPair(t, allAccess)
	copy(p.mem[0], "hello")
	_, err := p.qp.postSend(WR{WRID: 1, Opcode: opWrite, Flags: signaled, NumSGE: 1,
		SGEs: []SGE{{p.sge[0].Addr, 5, p.sge[0].LKey}}, RemoteAddr: p.sge[1].Addr + 8, RKey: p.rkey[1]})
	require.NoError(t, err)
	require.Equal(t, []WC{{WRID: 1, Opcode: wcWrite, ByteLen: 5}}, p.poll(t))
	require.Equal(t, "hello", string(p.mem[1][8:13]))

	_, err = p.qp.postSend(WR{WRID: 2, Opcode: opRead, Flags: signaled, NumSGE: 1,
		SGEs: []SGE{{p.sge[0].Addr + 32, 4, p.sge[0].LKey}}, RemoteAddr: p.sge[1].Addr + 9, RKey: p.rkey[1]})
	require.NoError(t, err)
	require.Equal(t, []WC{{WRID: 2, Opcode: wcRead, ByteLen: 4}}, p.poll(t))
	require.Equal(t, "ello", string(p.mem[0][32:36]))

	// A Send without a receive waits, and so do requests after it.
	_, err = p.qp.postSend(WR{WRID: 3, Opcode: 3, Flags: signaled | inline, NumSGE: 1, Inline: []byte("immediately"),
		Imm: 7}, WR{WRID: 4, Opcode: opWrite, Flags: signaled})
	require.NoError(t, err)
	require.Empty(t, p.poll(t))
	require.NoError(t, p.peer.postRecvTo(5, p.sge[1]))
	require.Equal(t, []WC{{WRID: 5, Opcode: wcRecv, ByteLen: 11, Imm: 7, Flags: 2}, {WRID: 3, ByteLen: 11},
		{WRID: 4, Opcode: wcWrite}}, p.poll(t))
	require.Equal(t, "immediately", string(p.mem[1][:11]))
}

func TestLoopbackChecks(t *testing.T) {
	for _, c := range []struct {
		name   string
		access int
		wr     func(p pair) WR
		status uint32
		peer   bool // its QP fails too
	}{
		{"rkey", allAccess, func(p pair) WR {
			return WR{Opcode: opWrite, NumSGE: 1, SGEs: p.sge[:1], RKey: 1}
		}, statusRemAccess, true},
		{"bounds", allAccess, func(p pair) WR {
			return WR{Opcode: opRead, NumSGE: 1, SGEs: p.sge[:1], RemoteAddr: p.sge[1].Addr + 1, RKey: p.rkey[1]}
		}, statusRemAccess, true},
		{"rights", 1 | 2, func(p pair) WR {
			return WR{Opcode: opRead, NumSGE: 1, SGEs: p.sge[:1], RemoteAddr: p.sge[1].Addr, RKey: p.rkey[1]}
		}, statusRemAccess, true},
		{"lkey", allAccess, func(p pair) WR {
			return WR{Opcode: opWrite, NumSGE: 1, SGEs: []SGE{{p.sge[0].Addr, 1, 1}}, RemoteAddr: p.sge[1].Addr,
				RKey: p.rkey[1]}
		}, statusLocProt, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, c.access)
			require.NoError(t, p.peer.postRecvTo(9, p.sge[1]))
			wr := c.wr(p)
			wr.WRID = 1
			_, err := p.qp.postSend(wr, WR{WRID: 2, Opcode: opWrite})
			require.NoError(t, err)
			wcs := p.poll(t)
			if c.peer {
				require.Equal(t, WC{WRID: 9, Status: statusFlush}, bare(wcs[0]))
				wcs = wcs[1:]
			}
			require.Len(t, wcs, 2)
			require.Equal(t, WC{WRID: 1, Status: c.status}, bare(wcs[0]))
			require.Equal(t, WC{WRID: 2, Status: statusFlush}, bare(wcs[1]))
			require.Equal(t, c.peer, readable(t, p.ctx.asyncFD()))
		})
	}
}

func bare(w WC) WC { return WC{WRID: w.WRID, Status: w.Status} }

func TestLoopbackReceiveTooSmall(t *testing.T) {
	p := newPair(t, allAccess)
	require.NoError(t, p.peer.postRecvTo(9, SGE{p.sge[1].Addr, 4, p.sge[1].LKey}))
	_, err := p.qp.postSend(WR{WRID: 1, Opcode: opSend, NumSGE: 1, SGEs: p.sge[:1]})
	require.NoError(t, err)
	wcs := p.poll(t)
	require.Len(t, wcs, 2)
	require.Equal(t, WC{WRID: 9, Status: statusLocLen}, bare(wcs[0]))
	require.Equal(t, WC{WRID: 1, Status: statusRemInvReq}, bare(wcs[1]))
}

// TestLoopbackRetries checks that a request to a QP in ERR is retried until that QP is destroyed,
// and beyond that if the peer has disconnected.
func TestLoopbackRetries(t *testing.T) {
	for _, left := range []bool{false, true} {
		client, listener, child, r := request(t, Fake0, "x")
		Loopback(true)
		peer, err := r.pd.createQP(qptRC, r.cq, r.cq, 8)
		require.NoError(t, err)
		for i, qp := range []object{r.qp, peer} {
			require.NoError(t, qp.modify(stateInit, maskInit))
			require.NoError(t, qp.modifyTo(stateRTR, maskRTR, []object{peer, r.qp}[i].num()))
			require.NoError(t, qp.modify(stateRTS, maskRTS))
		}
		require.NoError(t, child.accept(CMEvent{QPN: peer.num()}))
		client.expect(t, evConnectResponse, 0)
		require.NoError(t, client.id.establish())
		listener.expect(t, evEstablished, 0)
		require.NoError(t, peer.modify(stateErr, maskState))
		_, err = r.qp.postSend(WR{WRID: 1, Opcode: opSend})
		require.NoError(t, err)
		wcs := func() []WC {
			wcs, err := r.cq.poll(16)
			require.NoError(t, err)
			return wcs
		}
		require.Empty(t, wcs())
		if left {
			require.NoError(t, child.disconnect())
		}
		require.NoError(t, peer.destroyQP())
		status := uint32(statusRetryExc)
		if left {
			require.Empty(t, wcs())
			require.NoError(t, r.qp.modify(stateErr, maskState))
			status = statusFlush
		}
		require.Equal(t, []WC{{WRID: 1, Status: status}}, []WC{bare(wcs()[0])})
		for _, id := range []object{client.id, child, listener.id} {
			require.NoError(t, id.destroyID())
		}
	}
}

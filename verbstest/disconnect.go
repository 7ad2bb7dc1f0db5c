// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"io"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

var disconnectTests = []test{
	{"Flushes", disconnectFlushes},
	{"Twice", disconnectTwice},
	{"BothAtOnce", disconnectBothAtOnce},
	{"DataArrive", disconnectDataArrive},
	{"DuringReads", disconnectDuringReads},
	{"Close", disconnectClose},
	{"CloseQP", disconnectCloseQP},
	{"NotConnected", disconnectNotConnected},
}

// ended requires that both sides see an orderly close, initiated by from.
func (p *pair) ended(from, to *side) {
	p.Helper()
	p.disconnected()
	for _, s := range []*side{from, to} {
		require.Equal(p, verbs.QPStateErr.String(), s.qp.State().String())
	}
	require.ErrorIs(p, from.id.Err(), verbs.ErrClosed)
	require.ErrorIs(p, from.qp.Err(), verbs.ErrClosed)
	require.ErrorIs(p, to.id.Err(), io.EOF)
	require.ErrorIs(p, to.qp.Err(), io.EOF)
}

func disconnectFlushes(w *world) outcome {
	for _, active := range []bool{true, false} {
		by := w.pair(pairConfig{})
		p := w.pair(pairConfig{})
		p.works()
		from, to := p.a, p.b
		if !active {
			from, to = p.b, p.a
		}
		for i := range 3 {
			from.recv(uint64(i))
			to.recv(uint64(i))
		}
		require.NoError(w, from.id.Disconnect())
		// When the call returns, the CQs of the disconnecting side contain its completions.
		var wcs [4]verbs.WC
		n, err := from.rcq.Poll(wcs[:])
		require.NoError(w, err)
		require.Equal(w, 3, n)
		for i, wc := range wcs[:n] {
			require.EqualValues(w, i, wc.ID)
			require.Equal(w, verbs.WCWRFlushErr, wc.Status)
		}
		p.ended(from, to)
		to.flushed(to.rcq, 0, 1, 2)
		for _, s := range []*side{from, to} {
			s.post(verbs.SendWR{ID: 7, Opcode: verbs.WRSend})
			s.flushed(s.scq, 7)
			s.recv(8)
			s.flushed(s.rcq, 8)
		}
		by.works()
	}
	return tested
}

func disconnectTwice(w *world) outcome {
	p := w.pair(pairConfig{})
	require.NoError(w, p.a.id.Disconnect())
	require.NoError(w, p.a.id.Disconnect())
	p.ended(p.a, p.b)
	require.NoError(w, p.b.id.Disconnect(), "after the peer's")
	require.ErrorIs(w, p.b.id.Err(), io.EOF, "the first reason stays")
	return tested
}

func disconnectBothAtOnce(w *world) outcome {
	for range 10 {
		p := w.pair(pairConfig{})
		p.a.recv(1)
		p.b.recv(2)
		errs := make(chan error, 2)
		go func() { errs <- p.a.id.Disconnect() }()
		go func() { errs <- p.b.id.Disconnect() }()
		require.NoError(w, closes(w.T, errs, "Disconnect"))
		require.NoError(w, closes(w.T, errs, "Disconnect"))
		closes(w.T, p.a.id.Done(), "Done")
		closes(w.T, p.b.id.Done(), "Done")
		p.a.flushed(p.a.rcq, 1)
		p.b.flushed(p.b.rcq, 2)
	}
	return tested
}

// disconnectDataArrive: data of requests that completed before Disconnect arrives, whether or not
// the peer is sending too. Kernel siw occasionally loses some if the peer is sending: it closes a
// socket with unread data.
func disconnectDataArrive(w *world) outcome {
	w.arrives(false)
	if w.kernelIWARP() {
		w.without("arrival at a sender")
	} else {
		w.arrives(true)
	}
	return tested
}

// arrives disconnects while data of completed requests is in flight and, if talks is set, other
// data is arriving.
func (w *world) arrives(talks bool) {
	w.Helper()
	p := w.pair(pairConfig{})
	const n, count = 50_000, 40
	src, dst := w.a.alloc(n, 0), w.b.alloc(n*count, allRights)
	for i := range count {
		p.b.recv(uint64(i), dst.sge(i*n, n))
	}
	p.b.recv(count)
	const writes = 8
	if talks {
		theirs, ours := w.b.alloc(1<<20, 0), w.a.alloc(1<<20, allRights)
		for range writes {
			p.b.post(verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled, SGL: theirs.sgl(0, 1<<20),
				RemoteAddr: ours.at(0), RKey: ours.RKey()})
		}
	}
	for i := range count {
		p.a.post(verbs.SendWR{ID: uint64(i), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: src.sgl(0, n)})
	}
	for i := range count {
		require.EqualValues(w, i, p.a.ok(p.a.sent(), verbs.WCSend).ID)
	}
	require.NoError(w, p.a.id.Disconnect())
	for i := range count {
		require.EqualValues(w, i, p.b.ok(p.b.received(), verbs.WCRecv).ID)
		dst.holds(i*n, src.Bytes())
	}
	p.b.flushed(p.b.rcq, count)
	if talks {
		for range writes {
			require.Contains(w, []verbs.WCStatus{verbs.WCSuccess, verbs.WCWRFlushErr}, p.b.sent().Status)
		}
		closes(w.T, p.a.id.Done(), "Done")
		closes(w.T, p.b.id.Done(), "Done at the peer")
		return
	}
	p.ended(p.a, p.b)
}

// disconnectDuringReads: requests in progress are flushed, whichever side disconnects.
func disconnectDuringReads(w *world) outcome {
	for _, active := range []bool{true, false} {
		p := w.pair(pairConfig{})
		const n, count = 1 << 20, 20
		src, dst := w.b.alloc(n, allRights), w.a.alloc(n, verbs.AccessLocalWrite)
		for i := range count {
			wr := read(dst.sgl(0, n), src, 0)
			wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
			p.a.post(wr)
		}
		require.Zero(w, p.a.ok(p.a.sent(), verbs.WCRDMARead).ID)
		if active {
			require.NoError(w, p.a.id.Disconnect())
		} else {
			require.NoError(w, p.b.id.Disconnect())
		}
		failed := false
		for i := 1; i < count; i++ {
			wc := p.a.sent()
			require.EqualValues(w, i, wc.ID)
			if wc.Status != verbs.WCSuccess {
				failed = true
				require.Equal(w, verbs.WCWRFlushErr.String(), wc.Status.String())
			} else {
				require.False(w, failed, "a success behind a failure")
			}
		}
		closes(w.T, p.a.id.Done(), "Done")
		closes(w.T, p.b.id.Done(), "Done")
	}
	return tested
}

func disconnectClose(w *world) outcome {
	p := w.pair(pairConfig{})
	p.a.recv(1)
	p.b.recv(2)
	require.NoError(w, p.a.id.Close())
	p.ended(p.a, p.b)
	p.a.flushed(p.a.rcq, 1)
	p.b.flushed(p.b.rcq, 2)
	require.NoError(w, p.b.id.Close())
	require.ErrorIs(w, p.b.id.Err(), io.EOF)
	return tested
}

// disconnectCloseQP: destroying a QP closes its connection.
func disconnectCloseQP(w *world) outcome {
	p := w.pair(pairConfig{})
	p.a.recv(1)
	p.b.recv(2)
	require.NoError(w, p.a.qp.Close())
	closes(w.T, p.a.id.Done(), "Done")
	closes(w.T, p.b.id.Done(), "Done at the peer")
	p.a.flushed(p.a.rcq, 1)
	p.b.flushed(p.b.rcq, 2)
	require.ErrorIs(w, p.b.id.Err(), io.EOF)
	require.NoError(w, p.a.id.Disconnect())
	return tested
}

func disconnectNotConnected(w *world) outcome {
	id := w.resolve(w.ln)
	requireErr(w.T, id.Disconnect(), verbs.ErrInvalid)
	select {
	case <-id.Done():
		require.Fail(w, "done before it began")
	default:
	}
	return tested
}

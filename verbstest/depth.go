// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/verbs"
)

var depthTests = []test{
	{"Negotiate", depthNegotiate},
	{"NoneAsRequester", depthNoneAsRequester},
	{"NoneAsResponder", depthNoneAsResponder},
}

// depthName returns the name of a depth for use in a test name.
func depthName(v int) string {
	switch v {
	case 0:
		return "most"
	case cm.None:
		return "none"
	}
	return fmt.Sprint(v)
}

// most resolves a depth of ConnParam to a number.
func most(v, device int) int {
	d, err := cmprovider.Depth("", v, device)
	if err != nil {
		panic(err)
	}
	return d
}

// depthNegotiate connects with different depths in both directions: the smaller of requester's and
// responder's is used. On a fabric that does not negotiate, each side keeps its own.
func depthNegotiate(w *world) outcome {
	negotiates := w.negotiates()
	for _, c := range []struct{ ord, ird int }{ // of the requester, of the responder
		{0, 0}, {1, 1}, {1, 4}, {4, 1}, {16, 4}, {4, 16}, {0, 1}, {1, 0}, {cm.None, cm.None}, {cm.None, 4},
	} {
		w.sub(depthName(c.ord)+"-"+depthName(c.ird), func(w *world) outcome {
			for _, active := range []bool{true, false} {
				var cfg pairConfig
				if active {
					cfg.aParam.InitiatorDepth, cfg.bParam.ResponderResources = c.ord, c.ird
				} else {
					cfg.bParam.InitiatorDepth, cfg.aParam.ResponderResources = c.ord, c.ird
				}
				p := w.pair(cfg)
				from, to := p.a, p.b
				if !active {
					from, to = p.b, p.a
				}
				wantORD, wantIRD := most(c.ord, from.attr.MaxQPInitRdAtom), most(c.ird, to.attr.MaxQPRdAtom)
				ord, _ := from.id.Depths()
				_, ird := to.id.Depths()
				if negotiates {
					// On kernel siw, the accepting side serves as many as the other side requests.
					if w.siwBelow(w.f.Passive) && active && wantIRD < wantORD {
						wantIRD = wantORD
						w.without("responder-depth")
					}
					require.Equal(w, min(wantORD, wantIRD), ord)
					require.LessOrEqual(w, ord, ird)
				} else {
					require.Equal(w, wantORD, ord)
					require.Equal(w, wantIRD, ird)
				}
				if ord > 0 && ird > 0 && (negotiates || wantORD <= wantIRD) {
					for i := range 40 {
						wr := read(from.mem.sgl(8*i, 8), to.mem, i)
						wr.ID, wr.Flags = uint64(i), verbs.SendSignaled
						from.post(wr)
					}
					for i := range 40 {
						require.EqualValues(w, i, from.ok(from.sent(), verbs.WCRDMARead).ID)
						from.mem.holds(8*i, to.mem.Bytes()[i:i+8])
					}
				}
				if active {
					p.works()
				}
			}
			return tested
		})
	}
	return tested
}

// negotiates reports whether the two sides exchange their depths. If so, a request contains them.
func (w *world) negotiates() bool {
	w.Helper()
	a := w.dial(within(w.T), w.ln, cm.ConnParam{InitiatorDepth: 2, ResponderResources: 4})
	req, err := w.ln.Accept(within(w.T))
	require.NoError(w, err)
	ord, ird := req.Depths()
	require.NoError(w, req.Reject(nil))
	require.Error(w, closes(w.T, a.done, "Connect"))
	require.NoError(w, a.id.Close())
	if ord == -1 {
		require.Equal(w, -1, ird)
		return false
	}
	require.Equal(w, 2, ord)
	require.Equal(w, 4, ird)
	return true
}

// depthNoneAsRequester: a side with an ORD of 0 cannot read. Its own device refuses the Read, not
// the peer.
func depthNoneAsRequester(w *world) outcome {
	by := w.pair(pairConfig{})
	wrs := []verbs.SendWR{{Opcode: verbs.WRRDMARead}}
	for _, c := range atomicOps {
		if w.has(c.op) {
			wrs = append(wrs, c.wr)
		}
	}
	for _, wr := range wrs {
		w.sub(wr.Opcode.String(), func(w *world) outcome {
			p := w.pair(pairConfig{aParam: cm.ConnParam{InitiatorDepth: cm.None}})
			ord, _ := p.a.id.Depths()
			require.Zero(w, ord)
			p.works()
			own := p.a.mem.keeps()
			bad := at(wr, p.a.mem, 8, p.b.mem, 2048)
			bad.ID = 3
			p.localFault(bad, verbs.WCLocQPOpErr)
			own()
			by.in(w).works()
			return tested
		})
	}
	return tested
}

// depthNoneAsResponder: a side with an IRD of 0 announces it to the requester, or refuses its
// Reads.
func depthNoneAsResponder(w *world) outcome {
	p := w.pair(pairConfig{bParam: cm.ConnParam{ResponderResources: cm.None}})
	_, ird := p.b.id.Depths()
	if w.siwBelow(w.f.Passive) {
		require.Equal(w, w.a.attr.MaxQPInitRdAtom, ird, "as many as the active side asks for")
		p.works()
		w.without("responder-depth")
		return noted
	}
	require.Zero(w, ird)
	same, own := p.b.mem.keeps(), p.a.mem.keeps()
	wc := p.a.run(read(p.a.mem.sgl(0, 8), p.b.mem, 0))
	if w.negotiates() {
		require.Equal(w, verbs.WCLocQPOpErr.String(), wc.Status.String())
	} else {
		require.Contains(w, []verbs.WCStatus{verbs.WCRemInvReqErr, verbs.WCRemAccessErr}, wc.Status, wc.Status.String())
		p.broken(p.a, p.b, fault{1, 2, 0x02, verbs.WCRemInvReqErr})
	}
	p.disconnected()
	same()
	own()
	return tested
}

// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// denial is one way in which a request can refer to memory that it must not access at the peer,
// with the iWARP Terminate it causes: layer, type and code for a Write (RFC 5041 section 8.2;
// rights: RFC 5040 section 4.8), for a Read and for an atomic (RFC 5040 section 4.8).
type denial struct {
	name                string
	write, read, atomic codes
	// target creates the memory, which must not change, and returns the address and key of an
	// 8-byte request.
	target func(s *side, without verbs.AccessFlags) (memory []byte, addr uint64, rkey uint32)
}

// codes are layer, type and code of a Terminate.
type codes [3]uint8

// denials: every access is aligned to 8 bytes, so that an atomic is refused for the same reason.
var denials = []denial{
	{"UnknownKey", codes{1, 1, 0x00}, codes{0, 1, 0x00}, codes{0, 1, 0x00},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			return s.mem.Bytes(), s.mem.at(0), s.mem.RKey() ^ 0x5a5a5a00
		}},
	{"WrongKey", codes{1, 1, 0x00}, codes{0, 1, 0x00}, codes{0, 1, 0x00},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			return s.mem.Bytes(), s.mem.at(0), s.mem.RKey() ^ 1
		}},
	{"ZeroKey", codes{1, 1, 0x00}, codes{0, 1, 0x00}, codes{0, 1, 0x00},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			return s.mem.Bytes(), s.mem.at(0), 0
		}},
	{"Freed", codes{1, 1, 0x00}, codes{0, 1, 0x00}, codes{0, 1, 0x00},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			m := s.register(make([]byte, 64), allRights)
			addr, rkey := m.at(0), m.RKey()
			require.NoError(s, m.Close())
			return m.Bytes(), addr, rkey
		}},
	{"ForeignPD", codes{1, 1, 0x02}, codes{0, 1, 0x03}, codes{0, 1, 0x03},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			m := s.allocIn(s.allocPD(), 64, allRights)
			return m.Bytes(), m.at(0), m.RKey()
		}},
	{"NoRight", codes{0, 1, 0x02}, codes{0, 1, 0x02}, codes{0, 1, 0x02},
		func(s *side, without verbs.AccessFlags) ([]byte, uint64, uint32) {
			m := s.alloc(64, allRights&^without)
			return m.Bytes(), m.at(0), m.RKey()
		}},
	{"LocalOnly", codes{0, 1, 0x02}, codes{0, 1, 0x02}, codes{0, 1, 0x02},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			m := s.alloc(64, verbs.AccessLocalWrite)
			return m.Bytes(), m.at(0), m.RKey()
		}},
	{"OnePast", codes{1, 1, 0x01}, codes{0, 1, 0x01}, codes{0, 1, 0x01},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			page := s.alloc(128, 0)
			m := s.register(page.Bytes()[:71:71], allRights) // it lacks the last byte of the word at 64
			return page.Bytes(), m.at(64), m.RKey()
		}},
	{"OneBefore", codes{1, 1, 0x01}, codes{0, 1, 0x01}, codes{0, 1, 0x01},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			page := s.alloc(64, 0)
			m := s.register(page.Bytes()[1:], allRights)
			return page.Bytes(), page.at(0), m.RKey()
		}},
	{"Behind", codes{1, 1, 0x01}, codes{0, 1, 0x01}, codes{0, 1, 0x01},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			m := s.alloc(64, allRights)
			return m.Bytes(), m.at(64), m.RKey()
		}},
	{"FarAway", codes{1, 1, 0x01}, codes{0, 1, 0x01}, codes{0, 1, 0x01},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			m := s.alloc(64, allRights)
			return m.Bytes(), m.at(0) ^ 1<<62, m.RKey()
		}},
	{"Wrap", codes{1, 1, 0x03}, codes{0, 1, 0x04}, codes{0, 1, 0x04},
		func(s *side, _ verbs.AccessFlags) ([]byte, uint64, uint32) {
			// The region ends before the last address; the access wraps around to address 0.
			iova := ^uint64(0) - 127
			mr, err := s.pd.RegMRIova(s.memoryFor(iova, 127), iova, allRights)
			if err != nil {
				requireErr(s.T, err, verbs.ErrNotSupported)
				return nil, 0, 0
			}
			m := s.adopt(mr, nil)
			return m.Bytes(), ^uint64(0) - 7, m.RKey()
		}},
}

// fault returns the refusal with these codes.
func (c codes) fault() fault { return fault{c[0], c[1], c[2], verbs.WCRemAccessErr} }

// denied posts a request of 8 bytes for every denial, each on its own connection. request returns
// the request without operands, its expected refusal, and whether it gets no response; right is the
// right that NoRight removes.
func (w *world) denied(request func(d denial) (verbs.SendWR, fault, bool), right verbs.AccessFlags) {
	by := w.pair(pairConfig{})
	for _, d := range denials {
		w.sub(d.name, func(w *world) outcome {
			p := w.pair(pairConfig{})
			wr, f, oneWay := request(d)
			var memory []byte
			memory, wr.RemoteAddr, wr.RKey = d.target(p.b, right)
			if memory == nil {
				require.True(w, w.noIova())
				return noted
			}
			wr.SGL = p.a.mem.sgl(8, 8)
			if wr.Opcode == verbs.WRRDMARead && (d.name == "NoRight" || d.name == "LocalOnly") && p.readsAnything(wr) {
				return noted
			}
			was, same := slices.Clone(memory), p.a.mem.keeps()
			p.refuse(wr, f, oneWay)
			requireSame(w.T, was, memory)
			same()
			by.in(w).works()
			return tested
		})
	}
}

// readsAnything reports whether the fabric is kernel siw, which responds to Reads of regions
// without the right to read. A siw with RFC 7306 does not.
func (p *pair) readsAnything(wr verbs.SendWR) bool {
	p.Helper()
	if !p.siwBelow(p.f.Passive) || p.b.ctx.Ops().Has(verbs.OpImm64) {
		return false
	}
	p.a.ok(p.a.run(wr), verbs.WCRDMARead)
	p.without("read-right")
	return true
}

// refuse posts a request that the peer must refuse with f, and requires that the connection ends
// and that requests posted on either side, before and after, are flushed.
func (p *pair) refuse(wr verbs.SendWR, f fault, oneWay bool) {
	p.Helper()
	p.a.recv(9)
	p.b.recv(1)
	wr.ID = 3
	p.refusal(p.a.run(wr), f, oneWay)
	p.broken(p.a, p.b, f)
	p.a.flushed(p.a.rcq, 9)
	if wc := p.b.received(); p.iwarp() || wr.Opcode != verbs.WRRDMAWriteWithImm {
		require.EqualValues(p, 1, wc.ID)
		require.Equal(p, verbs.WCWRFlushErr.String(), wc.Status.String())
	} else {
		require.NotEqual(p, verbs.WCSuccess.String(), wc.Status.String()) // the receive belonged to the Write
	}
	p.a.post(verbs.SendWR{ID: 5, Opcode: verbs.WRSend})
	p.a.flushed(p.a.scq, 5)
	p.b.recv(6)
	p.b.flushed(p.b.rcq, 6)
}

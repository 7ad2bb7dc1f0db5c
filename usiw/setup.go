// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/cmprovider"
	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// rtrSTag is the key in the zero-length Write that opens a connection. Peers need not check it, but
// some hardware rejects 0.
const rtrSTag = 1

// depths limit the Reads and atomics in progress: ord as the requester, ird as the responder.
type depths struct{ ord, ird int }

// announce returns the IRD to announce to the peer: a power of two, because kernel siw rounds its
// ORD up to one and would otherwise exceed the announced IRD.
func (w depths) announce() int {
	if w.ird == 0 {
		return 0
	}
	return 1 << (bits.Len(uint(w.ird)) - 1)
}

// said returns the depths that a frame announces; -1 if it announces none.
func said(f *mpa.Frame) depths {
	if !f.HasEnhanced {
		return depths{-1, -1}
	}
	return depths{int(f.Enhanced.ORD), int(f.Enhanced.IRD)}
}

func (d *device) depths(p *cm.ConnParam) (w depths, err error) {
	if w.ord, err = cmprovider.Depth("InitiatorDepth", p.InitiatorDepth, d.cfg.MaxIRD); err != nil {
		return w, err
	}
	w.ird, err = cmprovider.Depth("ResponderResources", p.ResponderResources, d.cfg.MaxIRD)
	return w, err
}

// checkPrivate checks the length of private data for a frame with or without the enhanced word.
func checkPrivate(b []byte, enhanced bool) error {
	most := mpa.MaxPrivateData
	if enhanced {
		most -= mpa.EnhancedLen
	}
	if len(b) > most {
		return &verbs.LimitError{Name: "private data", Limit: uint64(most), Value: uint64(len(b))}
	}
	return nil
}

// initiate exchanges MPA frames as the active side (RFC 5044 section 7.1.2, RFC 6581 section 9.3)
// and sends the FPDU that opens a peer-to-peer connection. The caller sets a deadline on nc.
func (d *device) initiate(ctx context.Context, nc net.Conn, want depths, private []byte) (setup, error) {
	req := mpa.Frame{CRC: d.cfg.CRC == On, Markers: d.cfg.Markers == On, Rev: uint8(d.cfg.Rev), PrivateData: private}
	if d.cfg.Rev >= mpa.Rev2 {
		req.HasEnhanced = true
		req.Enhanced = mpa.Enhanced{PeerToPeer: d.cfg.RTR == On, IRD: uint16(want.announce()), ORD: uint16(want.ord)}
		if d.cfg.RTR == On {
			offerRTR(&req.Enhanced, cmp.Or(d.cfg.RTRMessages, RTRWrite))
		}
	}
	frame, err := req.Append(nil)
	if err != nil {
		return setup{}, err
	}
	if _, err := nc.Write(frame); err != nil {
		return setup{}, err
	}
	requestSent(ctx)
	rep, err := mpa.ReadFrame(nc)
	if err != nil {
		return setup{}, setupError(err)
	}
	agreed := setup{crc: req.CRC || rep.CRC, markOut: rep.Markers, markIn: req.Markers, ord: want.ord, ird: want.ird,
		serve: want.ird, peer: said(&rep), private: rep.PrivateData}
	switch {
	case !rep.Reply:
		return setup{}, protocolError("the peer answered with a Request: both sides are active")
	case rep.Reject:
		r := cm.Rejected(rep.PrivateData, -1, -1)
		if rep.HasEnhanced {
			r.IRD, r.ORD = int(rep.Enhanced.IRD), int(rep.Enhanced.ORD)
		}
		return setup{}, r
	case rep.Rev != req.Rev:
		return setup{}, protocolError("the peer answered with MPA revision %d to revision %d (Config.Rev chooses)",
			rep.Rev, req.Rev)
	case rep.HasEnhanced != req.HasEnhanced:
		return setup{}, protocolError("the peer's answer lacks the enhanced word of RFC 6581")
	case !rep.HasEnhanced:
		return agreed, nil
	}
	theirs := rep.Enhanced
	if theirs.ORD != mpa.NoNegotiate && int(theirs.ORD) > want.ird {
		agreed.terminate(nc, faultIRD)
		return setup{}, protocolError("the peer insists on ORD %d, our IRD is %d", theirs.ORD, want.ird)
	}
	if theirs.IRD != mpa.NoNegotiate {
		agreed.ord = min(want.ord, int(theirs.IRD))
	}
	if theirs.ORD != mpa.NoNegotiate {
		agreed.ird = int(theirs.ORD) // at most our IRD, as checked above
		agreed.serve = max(want.announce(), agreed.ird)
	}
	if req.Enhanced.PeerToPeer && theirs.PeerToPeer {
		if !agreed.openWith(both(req.Enhanced, theirs), theirs.IRD > 0) {
			agreed.terminate(nc, faultRTR)
			return setup{}, protocolError("no first message in common (the peer takes %s)", rtrNames(theirs))
		}
		agreed.mayMiss = req.CRC || !rep.CRC
		if _, err := nc.Write(agreed.opening); err != nil {
			return setup{}, err
		}
	}
	return agreed, nil
}

// offerRTR sets the bits of the messages that may open the connection.
func offerRTR(e *mpa.Enhanced, m RTRMessages) {
	e.RTRWrite, e.RTRRead, e.RTRSend = m&RTRWrite != 0, m&RTRRead != 0, m&RTRSend != 0
}

// both returns the opening messages that both sides support.
func both(a, b mpa.Enhanced) mpa.Enhanced {
	return mpa.Enhanced{RTRWrite: a.RTRWrite && b.RTRWrite, RTRRead: a.RTRRead && b.RTRRead, RTRSend: a.RTRSend &&
		b.RTRSend}
}

func rtrNames(e mpa.Enhanced) string {
	var names []string
	for _, m := range []struct {
		set  bool
		name string
	}{{e.RTRWrite, "Write"}, {e.RTRRead, "Read"}, {e.RTRSend, "Send"}} {
		if m.set {
			names = append(names, m.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// openWith builds the FPDU that opens a peer-to-peer connection (RFC 6581 section 9.3). Of the
// messages that both sides support it chooses the one that uses the fewest resources. reads is set
// if the peer answers Reads. It reports false if no message is possible.
func (s *setup) openWith(common mpa.Enhanced, reads bool) bool {
	b := make([]byte, mpa.LengthLen)
	switch {
	case common.RTRWrite:
		b = append(b, make([]byte, ddp.TaggedLen)...)
		ddp.Tagged{Last: true, ULP: rdmap.Control(rdmap.OpWrite), STag: rtrSTag}.Put(b[mpa.LengthLen:])
	case common.RTRRead && reads && (s.ord > 0 || !common.RTRSend):
		b = append(b, make([]byte, ddp.UntaggedLen+rdmap.ReadRequestLen)...)
		ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpReadRequest), QN: ddp.QNReadRequest,
			MSN: 1}.Put(b[mpa.LengthLen:])
		rdmap.ReadRequest{SinkSTag: rtrSTag, SrcSTag: rtrSTag}.Put(b[mpa.LengthLen+ddp.UntaggedLen:])
		s.openedBy = RTRRead
	case common.RTRSend:
		b = append(b, make([]byte, ddp.UntaggedLen)...)
		ddp.Untagged{Last: true, ULP: rdmap.Control(rdmap.OpSend), QN: ddp.QNSend, MSN: 1}.Put(b[mpa.LengthLen:])
		s.openedBy = RTRSend
	default:
		return false
	}
	b = sealFPDU(b, 0, s.crc)
	if s.markOut {
		b = mpa.AppendMarked(nil, 0, b, s.crc)
	}
	s.opening = b
	return true
}

// terminate sends a Terminate during set-up. It ignores write errors, because the set-up has failed
// anyway.
func (s *setup) terminate(nc net.Conn, f fault) {
	b := terminationOf(f, nil).appendFPDU(nil, s.crc)
	if s.markOut {
		b = mpa.AppendMarked(nil, 0, b, s.crc)
	}
	_, _ = nc.Write(b)
}

// respond returns the passive side's Reply to a Request, and the parameters agreed on with it. It
// does not send the Reply.
func (d *device) respond(req *mpa.Frame, want depths, private []byte) (mpa.Frame, setup, error) {
	if err := checkPrivate(private, req.HasEnhanced); err != nil {
		return mpa.Frame{}, setup{}, err
	}
	rep := mpa.Frame{Reply: true, CRC: req.CRC || d.asksCRC(req), Markers: d.cfg.Markers == On, Rev: req.Rev,
		PrivateData: private}
	agreed := setup{crc: rep.CRC, markOut: req.Markers, markIn: rep.Markers, ord: want.ord, ird: want.ird,
		serve: want.ird, peer: said(req), hold: true, private: req.PrivateData}
	if !req.HasEnhanced {
		return rep, agreed, nil
	}
	theirs := req.Enhanced
	e := mpa.Enhanced{PeerToPeer: theirs.PeerToPeer}
	// We use no more than the peer serves, and serve no more than the peer uses. 0x3FFF in either
	// field means that the depth is not negotiated (RFC 6581 section 9.1).
	if theirs.IRD != mpa.NoNegotiate {
		agreed.ord = min(want.ord, int(theirs.IRD))
		e.ORD = uint16(agreed.ord)
	} else {
		e.ORD = mpa.NoNegotiate
	}
	if theirs.ORD != mpa.NoNegotiate {
		agreed.ird = min(want.announce(), int(theirs.ORD))
		if agreed.ird > 0 {
			agreed.serve = 1 << bits.Len(uint(agreed.ird-1)) // the peer may also round up the depth that it asked for
		} else {
			agreed.serve = 0
		}
		e.IRD = uint16(agreed.serve)
	} else {
		e.IRD = mpa.NoNegotiate
	}
	if theirs.PeerToPeer {
		agreed.rtr = true
		ours := mpa.Enhanced{}
		offerRTR(&ours, cmp.Or(d.cfg.RTRMessages, RTRWrite|RTRRead|RTRSend))
		common := both(ours, theirs)
		if !common.RTRWrite && !common.RTRRead && !common.RTRSend {
			// Show the peer which messages we would accept.
			common = ours
		}
		if agreed.ird == 0 && common.RTRRead {
			if common.RTRWrite || common.RTRSend {
				common.RTRRead = false
			} else { // the Reply must name a message, and the IRD may be raised for it (RFC 6581 sections 9.1 and 9.2)
				agreed.ird, agreed.serve = 1, 1
				if e.IRD != mpa.NoNegotiate {
					e.IRD = 1
				}
			}
		}
		e.RTRWrite, e.RTRRead, e.RTRSend = common.RTRWrite, common.RTRRead, common.RTRSend
	}
	rep.HasEnhanced, rep.Enhanced = true, e
	return rep, agreed, nil
}

// asksCRC reports whether the passive side asks for CRC. With Auto, the Request decides: one from
// Linux siw never asks for a peer-to-peer connection, while one from this package does.
func (d *device) asksCRC(req *mpa.Frame) bool {
	return d.cfg.CRC == On || d.cfg.CRC == Auto && req.HasEnhanced && req.Enhanced.PeerToPeer
}

// refusal returns the Reply that rejects a Request. It has an enhanced word if the Request has one.
func (d *device) refusal(req *mpa.Frame, private []byte) mpa.Frame {
	return mpa.Frame{Reply: true, Reject: true, CRC: req.CRC, Rev: req.Rev, PrivateData: private,
		HasEnhanced: req.HasEnhanced}
}

// readRequest reads and validates a Request. An invalid one gets no answer (RFC 5044
// section 7.1.2).
func readRequest(nc net.Conn) (mpa.Frame, error) {
	f, err := mpa.ReadFrame(nc)
	switch {
	case err != nil:
		return f, setupError(err)
	case f.Reply:
		return f, protocolError("a Reply where a Request belongs: both sides are passive")
	case f.Rev != mpa.Rev1 && f.Rev != mpa.Rev2:
		return f, protocolError("MPA revision %d", f.Rev)
	}
	return f, nil
}

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", cm.ErrProtocol, fmt.Sprintf(format, args...))
}

// setupError explains why a frame could not be read.
func setupError(err error) error {
	var bad *mpa.FrameError
	switch {
	case errors.As(err, &bad):
		return fmt.Errorf("%w: %w", cm.ErrProtocol, err)
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return fmt.Errorf("the peer closed during connection set-up: %w", err)
	}
	return err
}

// bounded runs f, which makes blocking calls on nc, until ctx is done or timeout has passed since
// began. The error shows which of the two interrupted f.
func bounded(ctx context.Context, nc net.Conn, began time.Time, timeout time.Duration, f func() error) error {
	_ = nc.SetDeadline(began.Add(timeout))
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	err := f()
	expired := err != nil && errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case !stop() && ctx.Err() != nil && (err == nil || expired):
		return ctx.Err()
	case err == nil:
		return nc.SetDeadline(time.Time{})
	case expired:
		return fmt.Errorf("%w after %v", cm.ErrSetupTimeout, timeout)
	}
	return err
}

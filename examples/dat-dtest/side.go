// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/compat/dat"
)

// The memory of a side: what it exposes to the peer, what it sends from and reads into, and its
// receives.
const (
	window   = 16 << 10 // exposed to the peer, at offset 0
	dtestxes = 256      // what is exposed to dtestx
	source   = window
	inbox    = source + window
	message  = 2048 // of a receive
	receives = 8
	memory   = inbox + receives*message
)

// patience bounds the wait for an event.
const patience = time.Minute

// side is one side of the test.
type side struct {
	ctx                      context.Context
	out                      io.Writer
	server, dtestx           bool
	ia                       *dat.IA
	pz                       *dat.PZ
	requests, received, conn *dat.EVD
	ep                       *dat.EP
	lmr                      *dat.LMR
	remote                   dat.RMRTriplet // the memory that the peer exposes
	cookie                   uint64         // of the last request
}

func newSide(ctx context.Context, w io.Writer, cfg config, address netip.Addr) (_ *side, err error) {
	s := &side{ctx: ctx, out: w, dtestx: cfg.dtestx}
	if s.ia, err = dat.Open(cfg.device, dat.Config{Addr: address}); err != nil {
		return nil, err
	}
	if err := s.make(); err != nil {
		_ = s.ia.Close(dat.CloseAbrupt) // the first error is returned
		return nil, err
	}
	return s, nil
}

func (s *side) make() (err error) {
	if s.pz, err = s.ia.CreatePZ(); err != nil {
		return err
	}
	if s.requests, err = s.ia.CreateEVD(64, dat.EVDDTO); err != nil {
		return err
	}
	if s.received, err = s.ia.CreateEVD(64, dat.EVDDTO); err != nil {
		return err
	}
	if s.conn, err = s.ia.CreateEVD(8, dat.EVDCR|dat.EVDConnection); err != nil {
		return err
	}
	s.ep, err = s.ia.CreateEP(s.pz, s.received, s.requests, s.conn,
		dat.EPAttr{MaxRequestDTOs: 32, MaxRecvDTOs: receives, MaxRequestIOV: 2, MaxRDMAReadIn: 4, MaxRDMAReadOut: 4,
			RequestCompletionFlags: dat.CompletionUnsignalled})
	if err != nil {
		return err
	}
	if s.lmr, err = s.pz.AllocLMR(memory, dat.MemPrivAll|dat.MemPrivRemoteAtomic); err != nil {
		return err
	}
	return s.postAll()
}

// postAll posts every receive; the cookie is its number.
func (s *side) postAll() error {
	for i := range uint64(receives) {
		if err := s.post(i); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) post(number uint64) error {
	return s.ep.PostRecvImmed(s.segment(inbox+int(number)*message, message), number, dat.CompletionDefault)
}

func (s *side) name() string {
	if s.server {
		return "server"
	}
	return "client"
}

// say prints a line.
func (s *side) say(format string, args ...any) { fmt.Fprintf(s.out, "  "+format+"\n", args...) }

// bytes returns part of the memory.
func (s *side) bytes(off, n int) []byte { return s.lmr.Bytes()[off:][:n] }

func (s *side) segment(off, n int) []dat.LMRTriplet {
	seg, err := s.lmr.Segment(off, n)
	if err != nil {
		panic(err) // the offsets are constants
	}
	return []dat.LMRTriplet{seg}
}

// there returns part of the peer's memory.
func (s *side) there(off, n int) dat.RMRTriplet {
	r := s.remote
	r.VirtualAddress += uint64(off)
	r.SegmentLength = uint32(n)
	return r
}

// connected waits for the next connection event, which must be want.
func (s *side) connected(want dat.EventNumber) (dat.Event, error) {
	ev, _, err := s.conn.Wait(s.ctx, patience, 1)
	if err == nil && ev.Number != want {
		err = fmt.Errorf("%v, not %v: %w", ev.Number, want, ev.Connection.Cause)
	}
	return ev, err
}

// done waits for the completion of the most recent request. It skips those of unsignalled requests
// before it.
func (s *side) done(want dat.DTO, length int) error {
	for {
		ev, _, err := s.requests.Wait(s.ctx, patience, 1)
		if err != nil {
			return err
		}
		d := ev.DTO
		switch {
		case d.Err() != nil:
			return fmt.Errorf("%v: %w: %w", want, d.Err(), d.Cause)
		case d.Cookie != s.cookie:
			continue
		case d.Operation != want || int(d.TransferredLength) != length || d.EP != s.ep:
			return fmt.Errorf("%v of %d bytes, not %v of %d", d.Operation, d.TransferredLength, want, length)
		}
		return nil
	}
}

// next returns the cookie for the next request.
func (s *side) next() uint64 {
	s.cookie++
	return s.cookie
}

// receive waits for a message or an immediate and returns a copy of the data. The receive is posted
// again.
func (s *side) receive(want dat.DTO) (data []byte, immed uint32, err error) {
	ev, _, err := s.received.Wait(s.ctx, patience, 1)
	if err != nil {
		return nil, 0, err
	}
	d := ev.DTO
	switch {
	case d.Err() != nil:
		return nil, 0, fmt.Errorf("%v: %w: %w", want, d.Err(), d.Cause)
	case d.Operation != want:
		return nil, 0, fmt.Errorf("%v, not %v", d.Operation, want)
	case want != dat.DTOReceiveRDMAImmed: // the data of an RDMA Write is elsewhere
		data = bytes.Clone(s.bytes(inbox+int(d.Cookie)*message, int(d.TransferredLength)))
	}
	return data, d.ImmedData, s.post(d.Cookie)
}

// send sends a message and waits until the peer has received it.
func (s *side) send(data []byte) error {
	copy(s.bytes(source, len(data)), data)
	if err := s.ep.PostSend(s.segment(source, len(data)), s.next(), dat.CompletionSolicitedWait); err != nil {
		return err
	}
	return s.done(dat.DTOSend, len(data))
}

// together waits until the peer reaches the same step. With dtestx, which does not synchronize, it
// waits for a fixed time.
func (s *side) together() error {
	if s.dtestx {
		select {
		case <-time.After(time.Second):
			return nil
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
	if err := s.send(nil); err != nil {
		return err
	}
	data, _, err := s.receive(dat.DTOReceive)
	if err == nil && len(data) > 0 {
		err = fmt.Errorf("a message of %d bytes, not of 0", len(data))
	}
	return err
}

// number and setNumber access the 8-byte word at an offset, in host byte order.
func (s *side) number(off int) uint64 {
	w, err := s.lmr.MR().Word(off)
	if err != nil {
		panic(err) // the offsets are constants
	}
	return w.Load()
}

func (s *side) setNumber(off int, v uint64) {
	w, err := s.lmr.MR().Word(off)
	if err != nil {
		panic(err)
	}
	w.Store(v)
}

// triplet encodes an RMR triplet as dtestx sends it: address, length and context, in big-endian
// order.
func triplet(r dat.RMRTriplet) []byte {
	b := binary.BigEndian.AppendUint64(nil, r.VirtualAddress)
	b = binary.BigEndian.AppendUint32(b, r.SegmentLength)
	return binary.BigEndian.AppendUint32(b, r.RMRContext)
}

func parseTriplet(b []byte) (dat.RMRTriplet, error) {
	if len(b) != 16 {
		return dat.RMRTriplet{}, fmt.Errorf("an RMR triplet of %d bytes, not of 16", len(b))
	}
	return dat.RMRTriplet{VirtualAddress: binary.BigEndian.Uint64(b), SegmentLength: binary.BigEndian.Uint32(b[8:]),
		RMRContext: binary.BigEndian.Uint32(b[12:])}, nil
}

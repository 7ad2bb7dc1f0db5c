// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/goverbs/goverbs/compat/dat"
)

// text returns private data without the zeros that pad it.
func text(private []byte) string { return string(bytes.TrimRight(private, "\x00")) }

// accept rejects the first request and accepts the second. A request from dtestx is accepted at
// once; its private data is an EP number, 0, which it expects back.
func (s *side) accept() error {
	private := []byte("welcome")
	if s.dtestx {
		private = make([]byte, 4)
	} else {
		ev, err := s.connected(dat.ConnectionRequestEvent)
		if err != nil {
			return err
		}
		if err := ev.CR.CR.Reject([]byte("try again")); err != nil {
			return err
		}
		s.say("refused a request")
	}
	ev, err := s.connected(dat.ConnectionRequestEvent)
	if err != nil {
		return err
	}
	param, err := ev.CR.CR.Query()
	if err != nil {
		return err
	}
	s.say("a request says %q", text(param.PrivateData))
	if err := ev.CR.CR.Accept(s.ep, private); err != nil {
		return err
	}
	_, err = s.connected(dat.ConnectionEstablished)
	return err
}

// connect connects twice: the server rejects the first request. dtestx does not.
func (s *side) connect(to netip.Addr, port uint64) error {
	private := []byte("once more")
	if s.dtestx {
		private = make([]byte, 4)
	} else {
		if err := s.ep.Connect(to, port, patience, []byte("hello")); err != nil {
			return err
		}
		ev, err := s.connected(dat.ConnectionPeerRejected)
		if err != nil {
			return err
		}
		s.say("refused: %q, %v", text(ev.Connection.PrivateData), s.ep.State())
		flushed, err := s.again()
		if err != nil {
			return err
		}
		s.say("%d receives flushed", flushed)
	}
	for {
		if err := s.ep.Connect(to, port, patience, private); err != nil {
			return err
		}
		ev, _, err := s.conn.Wait(s.ctx, patience, 1)
		switch {
		case err != nil:
			return err
		case ev.Number == dat.ConnectionEstablished:
			s.say("connected: %q, %v", text(ev.Connection.PrivateData), s.ep.State())
			return nil
		case ev.Number != dat.ConnectionNonPeerRejected || !s.dtestx:
			return fmt.Errorf("%v: %w", ev.Number, ev.Connection.Cause)
		}
		// dtestx starts to listen some time after it has sent its address.
		if _, err := s.again(); err != nil {
			return err
		}
	}
}

// again prepares the EP of a rejected connection for another one, and returns how many receives
// were flushed.
func (s *side) again() (flushed int, err error) {
	for {
		ev, err := s.received.Dequeue()
		if errors.Is(err, dat.QueueEmpty) {
			break
		}
		if err != nil {
			return 0, err
		}
		if !errors.Is(ev.DTO.Err(), dat.DTOErrFlushed) {
			return 0, fmt.Errorf("a receive of a refused connection: %v", ev.DTO.Status)
		}
		flushed++
	}
	if err := s.ep.Reset(); err != nil {
		return 0, err
	}
	return flushed, s.postAll()
}

// end makes the client disconnect gracefully with suppressed requests in progress, and both sides
// check what is flushed.
func (s *side) end() error {
	const last = 5
	if !s.server {
		for i := range last {
			copy(s.bytes(source+i*8, 8), "farewell")
			if err := s.ep.PostSend(s.segment(source+i*8, 8), s.next(), dat.CompletionSuppress); err != nil {
				return err
			}
		}
		if err := s.ep.Disconnect(dat.CloseGraceful); err != nil {
			return err
		}
	}
	if _, err := s.connected(dat.ConnectionDisconnected); err != nil {
		return err
	}
	arrived, flushed := 0, 0
	for {
		ev, err := s.received.Dequeue()
		if errors.Is(err, dat.QueueEmpty) {
			break
		}
		if err != nil {
			return err
		}
		switch ev.DTO.Status {
		case dat.DTOSuccess:
			arrived++
		case dat.DTOErrFlushed:
			flushed++
		default:
			return fmt.Errorf("a receive at the end: %w", ev.DTO.Status)
		}
	}
	s.say("%v: %d messages had come, %d receives flushed", s.ep.State(), arrived, flushed)
	if err := s.ep.PostSend(nil, s.next(), dat.CompletionDefault); err != nil {
		return err
	}
	ev, _, err := s.requests.Wait(s.ctx, patience, 1)
	if err != nil {
		return err
	}
	s.say("a message after that: %v", ev.DTO.Status)
	return nil
}

// leave disconnects as dtestx does.
func (s *side) leave() error {
	if err := s.ep.Disconnect(dat.CloseAbrupt); err != nil {
		return err
	}
	_, err := s.connected(dat.ConnectionDisconnected)
	s.say("%v", s.ep.State())
	return err
}

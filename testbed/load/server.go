// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// anyAccess are the rights that permit any request to use the memory.
const anyAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic |
	verbs.AccessMWBind

// What a request's ID says besides the slot, in bits 32 and up.
const (
	idRecv uint64 = iota << 32
	idSend        // a slot of answers is free again
	idRead        // an answer has been read
	idMask = 3 << 32
)

// server is the passive end of a connection.
type server struct {
	node *Node
	cq   *verbs.CQ
	qp   *verbs.QP
	pool *pool     // nil = separate receives
	in   *verbs.MR // receives, if not from a pool
	out  *verbs.MR // answers
	mem  *verbs.MR // what the client writes and reads
	id   *cm.ID
	free []int // slots of out
	owed []int // slots of receives whose message waits for a free slot of out
}

func (s *server) open(wish Wish) (err error) {
	n := s.node
	if s.cq, err = n.ctx.CreateCQ(verbs.CQConfig{CQE: poolSlots + 4*slots}); err != nil {
		return err
	}
	if wish&WishSRQ != 0 {
		if s.pool, err = n.takePool(); err != nil {
			return err
		}
	}
	cfg := verbs.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, Cap: verbs.QPCap{MaxSendWR: 2 * slots, MaxRecvWR: 2 * slots}}
	if s.pool != nil {
		cfg.SRQ = s.pool.srq
	} else if s.in, err = n.pd.AllocMR(2*slots*slotLen, verbs.AccessLocalWrite); err != nil {
		return err
	}
	// On iWARP, the peer responds to a Read by writing.
	if s.out, err = n.pd.AllocMR(slots*slotLen, anyAccess); err != nil {
		return err
	}
	if s.mem, err = n.pd.AllocMR(regionLen, anyAccess); err != nil {
		return err
	}
	for i := range slots {
		s.free = append(s.free, i)
	}
	s.qp, err = n.pd.CreateQP(cfg)
	return err
}

func (s *server) accept(req *cm.Request) (err error) {
	if err := req.BindQP(s.qp); err != nil {
		return err
	}
	if s.pool == nil {
		for i := range 2 * slots {
			if err := s.recv(i); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	region := region{s.mem.Addr(), s.mem.RKey()}
	s.id, err = req.Accept(ctx, s.qp, cm.ConnParam{PrivateData: region.marshal()})
	return err
}

// run serves until the connection ends.
func (s *server) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-s.id.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	var wcs [16]verbs.WC
	for {
		k, err := s.cq.Wait(ctx, wcs[:])
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return s.rest()
		}
		if err != nil {
			return err
		}
		for i := range wcs[:k] {
			cut, err := s.handle(&wcs[i])
			if err != nil {
				return err
			}
			if cut {
				return within(func() { <-s.id.Done() }, "the end of a connection that was cut here")
			}
		}
	}
}

// rest polls what is left in the queue after the connection has ended.
func (s *server) rest() error {
	var wcs [16]verbs.WC
	for {
		k, err := s.cq.Poll(wcs[:])
		if k == 0 || err != nil {
			return err
		}
		for i := range wcs[:k] {
			s.giveBack(&wcs[i])
		}
	}
}

// giveBack returns a receive that belongs to a pool.
func (s *server) giveBack(wc *verbs.WC) {
	if s.pool != nil && wc.ID&idMask == idRecv {
		if err := s.pool.post(int(uint32(wc.ID))); err != nil {
			s.node.fail(err)
		}
	}
}

// handle handles a completion and reports whether it closed the connection.
func (s *server) handle(wc *verbs.WC) (cut bool, err error) {
	slot := int(uint32(wc.ID))
	if wc.Status != verbs.WCSuccess {
		s.node.counts.Add("server "+wc.Status.String(), 1)
		s.giveBack(wc)
		return false, nil // Done will be closed
	}
	switch wc.ID & idMask {
	case idSend:
		s.free = append(s.free, slot)
		if len(s.owed) == 0 {
			return false, nil
		}
		slot, s.owed = s.owed[0], s.owed[1:]
		return false, s.answer(slot, s.message(slot))
	case idRead:
		msg := s.out.Bytes()[slot*slotLen : (slot+1)*slotLen]
		return false, s.send(slot, headLen+int(binary.LittleEndian.Uint16(msg[14:])))
	}
	if wc.Opcode == verbs.WCRecvRDMAWithImm {
		msg := s.message(slot)[:headLen]
		clear(msg)
		msg[0] = kindImm
		binary.LittleEndian.PutUint32(msg[4:], wc.Imm)
		return false, s.take(slot, msg)
	}
	msg := s.message(slot)[:wc.ByteLen]
	if len(msg) < headLen {
		return false, fmt.Errorf("a message of %d bytes", len(msg))
	}
	if msg[0] == kindCut {
		how := msg[1] % 4
		s.giveBack(wc)
		s.node.counts.Add("cut by the server", 1)
		switch how {
		case 0:
			return true, s.id.Disconnect()
		case 1:
			return true, s.qp.Close()
		case 2:
			return true, s.id.Close()
		default:
			return true, s.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		}
	}
	return false, s.take(slot, msg)
}

// message returns the memory of a receive.
func (s *server) message(slot int) []byte {
	if s.pool != nil {
		return s.pool.mr.Bytes()[slot*slotLen : (slot+1)*slotLen]
	}
	return s.in.Bytes()[slot*slotLen : (slot+1)*slotLen]
}

// take answers a message as soon as there is room. The length is stored where the client leaves
// zeros.
func (s *server) take(slot int, msg []byte) error {
	if msg[0] != kindPull {
		binary.LittleEndian.PutUint16(msg[14:], uint16(len(msg)))
	}
	if len(s.free) == 0 {
		s.owed = append(s.owed, slot)
		return nil
	}
	return s.answer(slot, msg)
}

// answer copies a message to a slot of out, posts its receive again, and sends what the client
// requested.
func (s *server) answer(slot int, msg []byte) error {
	k := len(s.free) - 1
	to := s.free[k]
	s.free = s.free[:k]
	out := s.out.Bytes()[to*slotLen : (to+1)*slotLen]
	kind := msg[0]
	size := headLen
	if kind != kindPull {
		size = int(binary.LittleEndian.Uint16(msg[14:]))
	}
	copy(out, msg[:size])
	if err := s.recv(slot); err != nil {
		return err
	}
	if kind != kindPull {
		return s.send(to, size)
	}
	length := binary.LittleEndian.Uint16(out[14:])
	if int(length) > slotLen-headLen {
		return fmt.Errorf("the client wants %d bytes pulled", length)
	}
	return s.post(verbs.SendWR{ID: idRead | uint64(to), Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{{Addr: s.out.Addr() + uint64(to*slotLen+headLen), Length: uint32(length),
			LKey: s.out.LKey()}},
		RemoteAddr: binary.LittleEndian.Uint64(out[2:]), RKey: binary.LittleEndian.Uint32(out[10:])})
}

func (s *server) send(slot, size int) error {
	return s.post(verbs.SendWR{ID: idSend | uint64(slot), Opcode: verbs.WRSend, Flags: verbs.SendSignaled,
		SGL: []verbs.SGE{{Addr: s.out.Addr() + uint64(slot*slotLen), Length: uint32(size), LKey: s.out.LKey()}}})
}

// post posts a request; a failed QP accepts and flushes it.
func (s *server) post(wr verbs.SendWR) error {
	_, err := s.qp.PostSend([]verbs.SendWR{wr})
	return err
}

func (s *server) recv(slot int) error {
	if s.pool != nil {
		return s.pool.post(slot)
	}
	_, err := s.qp.PostRecv([]verbs.RecvWR{recvOf(s.in, slot)})
	return err
}

// recvOf returns a receive into a slot.
func recvOf(mr *verbs.MR, slot int) verbs.RecvWR {
	return verbs.RecvWR{ID: idRecv | uint64(slot),
		SGL: []verbs.SGE{{Addr: mr.Addr() + uint64(slot*slotLen), Length: slotLen, LKey: mr.LKey()}}}
}

// close closes everything, within the limit.
func (s *server) close() error {
	var err error
	hang := within(func() {
		err = errors.Join(s.id.Close(), s.qp.Close())
		if s.cq != nil {
			err = errors.Join(err, s.rest())
		}
		err = errors.Join(err, s.cq.Close(), s.in.Close(), s.out.Close(), s.mem.Close())
		if s.pool != nil {
			for _, slot := range s.owed {
				err = errors.Join(err, s.pool.post(slot))
			}
			err = errors.Join(err, s.node.givePool(s.pool))
		}
	}, "a server's Close")
	if hang != nil {
		return hang
	}
	return err
}

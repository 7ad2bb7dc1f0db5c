// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// siwConn is a connection between two NICs with a region at each end.
type siwConn struct {
	mode     string
	tight    bool // modePoll: nothing else runs between polls
	mr       *verbs.MR
	scq, rcq *verbs.CQ
	qp       *verbs.QP
	id       *cm.ID
	addr     uint64 // of the peer's region
	key      uint32
	wcs      [64]verbs.WC
	wr       [1]verbs.SendWR
	sgl      [1]verbs.SGE
	recv     [1]verbs.RecvWR
	at       int // offset of the next message in the region
}

func newNIC(j *job) (*usiw.NIC, error) {
	cfg := usiw.Config{CRC: usiw.On, MTU: j.mtu}
	if !j.crc {
		cfg.CRC = usiw.Off
	}
	if j.mode == modeSpin {
		cfg.Spin = spin
	}
	return usiw.New(cfg)
}

func newSIWConn(ctx *verbs.Context, j *job) (*siwConn, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	c := &siwConn{mode: j.mode, tight: j.work == "stream"}
	access := verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic
	if c.mr, err = pd.AllocMR(memory, access); err != nil {
		return nil, err
	}
	touch(c.mr.Bytes())
	if c.scq, err = ctx.CreateCQ(verbs.CQConfig{}); err != nil {
		return nil, err
	}
	if c.rcq, err = ctx.CreateCQ(verbs.CQConfig{}); err != nil {
		return nil, err
	}
	c.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: c.scq, RecvCQ: c.rcq})
	return c, err
}

// where returns the private data that describes this side's region.
func (c *siwConn) where() []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, c.mr.Addr()), c.mr.RKey())
}

func (c *siwConn) learn(where []byte) error {
	if len(where) != 12 {
		return fmt.Errorf("private data of %d bytes", len(where))
	}
	c.addr, c.key = binary.BigEndian.Uint64(where), binary.BigEndian.Uint32(where[8:])
	return nil
}

// next fills in a Write of the next message, to the same offset in the other side's region.
func (c *siwConn) next(op verbs.WROpcode, flags verbs.SendFlags, size int) []verbs.SendWR {
	if c.at+size > memory {
		c.at = 0
	}
	c.sgl[0] = verbs.SGE{Addr: c.mr.Addr() + uint64(c.at), Length: uint32(size), LKey: c.mr.LKey()}
	c.wr[0] = verbs.SendWR{Opcode: op, Flags: flags, SGL: c.sgl[:], RemoteAddr: c.addr + uint64(c.at), RKey: c.key}
	c.at += size
	return c.wr[:]
}

// wait waits for at least one completion and polls up to most of them.
func (c *siwConn) wait(cq *verbs.CQ, most int) (n int, err error) {
	if c.mode == modePoll {
		for n, err = cq.Poll(c.wcs[:most]); n == 0 && err == nil; n, err = cq.Poll(c.wcs[:most]) {
			// With small messages, a pause between polls helps both sides. In a stream,
			// runtime.Gosched would wake another thread, which takes a processor from a goroutine
			// that waits for room in the socket.
			if !c.tight {
				runtime.Gosched()
			}
		}
	} else {
		n, err = cq.Wait(context.Background(), c.wcs[:most])
	}
	for i := range n {
		err = errors.Join(err, c.wcs[i].Err())
	}
	return n, err
}

// receive waits for a message and posts a receive for another.
func (c *siwConn) receive() error {
	if _, err := c.wait(c.rcq, 1); err != nil {
		return err
	}
	_, err := c.qp.PostRecv(c.recv[:])
	return err
}

// listenSIW answers the other side until it closes the connection. In a ping-pong it answers an
// immediate with an RDMA Write with immediate of the same size, otherwise with an empty Send. For
// Reads it calls runProgram.
func listenSIW(j *job, announce func(addr string)) error {
	nic, err := newNIC(j)
	if err != nil {
		return err
	}
	ctx := context.Background()
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	if err != nil {
		return err
	}
	announce(ln.Addr().String())
	errs := make(chan error, j.conns)
	for range j.conns {
		req, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		c, err := newSIWConn(req.Context(), j)
		if err != nil {
			return err
		}
		if err := errors.Join(c.learn(req.PrivateData()), req.BindQP(c.qp)); err != nil {
			return err
		}
		for range 4 {
			if _, err := c.qp.PostRecv(c.recv[:]); err != nil {
				return err
			}
		}
		if c.id, err = req.Accept(ctx, c.qp, cm.ConnParam{PrivateData: c.where()}); err != nil {
			return err
		}
		go func() {
			if j.work == workReads {
				errs <- c.runProgram(j)
			} else {
				errs <- c.answer(j)
			}
		}()
	}
	for range j.conns {
		err = errors.Join(err, <-errs)
	}
	return errors.Join(err, ln.Close(), nic.Close())
}

func (c *siwConn) answer(j *job) error {
	if j.work == "fetchadd" && j.mode == modeSpin {
		c.mode = modePoll // nothing ever completes here: a sleeping goroutine would never wake up
	}
	for {
		err := c.receive()
		switch {
		case err != nil:
		case j.work == "pingpong":
			_, err = c.qp.PostSend(c.next(verbs.WRRDMAWriteWithImm, 0, j.size))
		default:
			_, err = c.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRSend}})
		}
		if errors.Is(err, verbs.WCWRFlushErr) {
			return c.id.Close() // the other side is done
		}
		if err != nil {
			return err
		}
	}
}

// connectSIW runs the measuring side.
func connectSIW(j *job, addr string) (f figures, err error) {
	nic, err := newNIC(j)
	if err != nil {
		return f, err
	}
	ctx := context.Background()
	conns := make([]*siwConn, j.conns)
	for i := range conns {
		id, err := cm.Resolve(ctx, addr, cm.Config{Device: nic.Device()})
		if err != nil {
			return f, err
		}
		c, err := newSIWConn(id.Context(), j)
		if err != nil {
			return f, err
		}
		c.id, conns[i] = id, c
		if err := id.BindQP(c.qp); err != nil {
			return f, err
		}
		for range 4 {
			if _, err := c.qp.PostRecv(c.recv[:]); err != nil {
				return f, err
			}
		}
		if err := id.Connect(ctx, c.qp, cm.ConnParam{PrivateData: c.where()}); err != nil {
			return f, err
		}
		if err := c.learn(id.PrivateData()); err != nil {
			return f, err
		}
	}
	switch j.work {
	case workReads:
		f, err = conns[0].readTimes(j)
	case "pingpong":
		f.one, err = timed(j.seconds, oneWay, func(d time.Duration) (int, error) { return conns[0].pingpong(j, d) })
	case "fetchadd":
		perSecond := func(n int, d time.Duration) figure { return float64(n) / d.Seconds() }
		f.one, err = timed(j.seconds, perSecond, func(d time.Duration) (int, error) { return conns[0].fetchAdd(j, d) })
	default:
		f.one, err = timed(j.seconds, rate, func(d time.Duration) (int, error) {
			return together(conns, func(c *siwConn) (int, error) { return c.stream(j, d) })
		})
	}
	for _, c := range conns {
		err = errors.Join(err, c.id.Close())
	}
	return f, errors.Join(err, nic.Close())
}

func (c *siwConn) pingpong(j *job, d time.Duration) (n int, err error) {
	for start := time.Now(); time.Since(start) < d; n++ {
		if _, err := c.qp.PostSend(c.next(verbs.WRRDMAWriteWithImm, 0, j.size)); err != nil {
			return n, err
		}
		if err := c.receive(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// stream writes messages for the duration d, the last one with an immediate, and returns the number
// of bytes that arrived.
func (c *siwConn) stream(j *job, d time.Duration) (n int, err error) {
	inProgress := 0
	for start, last := time.Now(), false; !last; n += j.size {
		if inProgress == j.depth {
			done, err := c.wait(c.scq, len(c.wcs))
			if err != nil {
				return n, err
			}
			inProgress -= done
		}
		op := verbs.WRRDMAWrite
		if last = time.Since(start) >= d; last {
			op = verbs.WRRDMAWriteWithImm
		}
		if _, err := c.qp.PostSend(c.next(op, verbs.SendSignaled, j.size)); err != nil {
			return n, err
		}
		inProgress++
	}
	for inProgress > 0 {
		done, err := c.wait(c.scq, len(c.wcs))
		if err != nil {
			return n, err
		}
		inProgress -= done
	}
	return n, c.receive()
}

// fetchAdd keeps depth operations in progress for the duration d and returns how many completed. As
// many as completed are posted again as one list.
func (c *siwConn) fetchAdd(j *job, d time.Duration) (n int, err error) {
	wrs := make([]verbs.SendWR, j.depth)
	for i := range wrs {
		sge, err := c.mr.SGE(8*i, 8)
		if err != nil {
			return 0, err
		}
		wrs[i] = verbs.SendWR{Opcode: verbs.WRAtomicFetchAndAdd, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
			Add: 1, RemoteAddr: c.addr, RKey: c.key}
	}
	free := j.depth
	for start := time.Now(); ; {
		if time.Since(start) >= d {
			if free == j.depth {
				return n, nil
			}
		} else if _, err := c.qp.PostSend(wrs[:free]); err != nil {
			return n, err
		} else {
			free = 0
		}
		done, err := c.wait(c.scq, len(c.wcs))
		if err != nil {
			return n, err
		}
		free, n = free+done, n+done
	}
}

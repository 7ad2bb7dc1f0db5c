// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	_ "github.com/goverbs/goverbs/compat/ibcompat" // devices ib:NAME
	_ "github.com/goverbs/goverbs/usiw"            // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

// The wr_ids.
const (
	received = 1
	sent     = 2
)

// filler fills the memory before anything arrives.
const filler = 0x7b

// end is one end of the connection.
type end struct {
	options
	ctx *verbs.Context
	pd  *verbs.PD
	mr  *verbs.MR
	ch  *verbs.CompChannel
	cq  *verbs.CQ
	qp  *verbs.QP
}

// newEnd opens the device and creates a QP in INIT with posted receives.
func newEnd(o options) (*end, error) {
	e := &end{options: o}
	if err := e.open(); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *end) open() (err error) {
	dev, err := verbs.DeviceByName(e.device)
	if err != nil {
		return err
	}
	if e.ctx, err = dev.Open(); err != nil {
		return err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return err
	}
	if e.mr, err = e.pd.AllocMR(e.size, verbs.AccessLocalWrite); err != nil {
		return err
	}
	for i := range e.mr.Bytes() {
		e.mr.Bytes()[i] = filler
	}
	if e.events {
		if e.ch, err = e.ctx.CreateCompChannel(); err != nil {
			return err
		}
	}
	if e.cq, err = e.ctx.CreateCQ(verbs.CQConfig{CQE: e.depth + 1, Channel: e.ch}); err != nil {
		return err
	}
	if e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: e.depth, MaxSendSGE: 1, MaxRecvSGE: 1}}); err != nil {
		return err
	}
	if err = e.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PortNum: uint8(e.ibPort)},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return err
	}
	if err = e.recv(e.depth); err != nil {
		return err
	}
	if e.events {
		err = e.cq.ReqNotify(false)
	}
	return err
}

func (e *end) close() {
	e.ctx.CloseAll()
}

// row chooses the GID that is sent to the peer.
func (e *end) row(tcp net.Addr) (verbs.GIDEntry, error) {
	if e.gid >= 0 {
		return e.ctx.QueryGID(e.ibPort, e.gid)
	}
	at, err := netip.ParseAddrPort(tcp.String())
	if err != nil {
		return verbs.GIDEntry{}, err
	}
	return e.ctx.ChooseGID(e.ibPort, at.Addr())
}

// bringUp moves the QP to RTR and RTS with the peer's address.
func (e *end) bringUp(local, remote place, sgid int) error {
	rtr := verbs.QPAttr{State: verbs.QPStateRTR, PathMTU: mtus[e.mtu], DestQPNum: remote.qpn, RQPSN: remote.psn,
		MaxDestRdAtomic: 1, MinRNRTimer: 12,
		AH: verbs.AHAttr{DLID: remote.lid, SL: uint8(e.sl), PortNum: uint8(e.ibPort)}}
	if !remote.gid.IsZero() {
		rtr.AH.IsGlobal = true
		rtr.AH.GRH = verbs.GlobalRoute{DGID: remote.gid, SGIDIndex: uint8(sgid), HopLimit: 1}
	}
	if err := e.qp.Modify(rtr,
		verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|verbs.QPAttrRQPSN|
			verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer); err != nil {
		return err
	}
	return e.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, SQPSN: local.psn,
		MaxRdAtomic: 1}, verbs.QPAttrState|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|verbs.QPAttrRNRRetry|
		verbs.QPAttrSQPSN|verbs.QPAttrMaxRdAtomic)
}

// recv posts receives.
func (e *end) recv(n int) error {
	sge, err := e.mr.SGE(0, e.size)
	if err != nil {
		return err
	}
	wrs := make([]verbs.RecvWR, n)
	for i := range wrs {
		wrs[i] = verbs.RecvWR{ID: received, SGL: []verbs.SGE{sge}}
	}
	_, err = e.qp.PostRecv(wrs)
	return err
}

func (e *end) send() error {
	sge, err := e.mr.SGE(0, e.size)
	if err != nil {
		return err
	}
	wr := verbs.Send(sge)
	wr.ID = sent
	_, err = e.qp.PostSend([]verbs.SendWR{wr})
	return err
}

// play sends the message back and forth, and returns how long that took.
func (e *end) play(ctx context.Context) (time.Duration, error) {
	pending := received // what must complete before the next message is sent
	if e.host != "" {
		if e.validate {
			e.mark()
		}
		if err := e.send(); err != nil {
			return 0, err
		}
		pending |= sent
	}
	start := time.Now()
	posted, counts := e.depth, map[int]int{}
	var wcs [2]verbs.WC
	for counts[received] < e.iters || counts[sent] < e.iters {
		n, err := e.wait(ctx, wcs[:])
		if err != nil {
			return 0, err
		}
		for _, wc := range wcs[:n] {
			if err := wc.Err(); err != nil {
				return 0, fmt.Errorf("wr_id %d: %w", wc.ID, errors.Join(err, e.qp.Err()))
			}
			counts[int(wc.ID)]++
			if wc.ID == received {
				if posted--; posted <= 1 {
					if err := e.recv(e.depth - posted); err != nil {
						return 0, err
					}
					posted = e.depth
				}
			}
			if pending &^= int(wc.ID); pending == 0 && counts[sent] < e.iters {
				if err := e.send(); err != nil {
					return 0, err
				}
				pending = received | sent
			}
		}
	}
	return time.Since(start), nil
}

// wait returns completions, possibly none.
func (e *end) wait(ctx context.Context, wcs []verbs.WC) (int, error) {
	if e.events {
		if _, err := e.ch.Wait(ctx); err != nil {
			return 0, err
		}
		if err := e.cq.ReqNotify(false); err != nil {
			return 0, err
		}
	}
	n, err := e.cq.Poll(wcs)
	if err == nil {
		err = ctx.Err()
	}
	return n, err
}

// The client marks each page with a zero at its start, like ibv_rc_pingpong.
func (e *end) pages(f func(page int, b *byte)) {
	for i := 0; i < e.size; i += os.Getpagesize() {
		f(i/os.Getpagesize(), &e.mr.Bytes()[i])
	}
}

func (e *end) mark() { e.pages(func(_ int, b *byte) { *b = 0 }) }

// invalid lists the pages where the mark did not arrive.
func (e *end) invalid() (pages []int) {
	e.pages(func(page int, b *byte) {
		if *b != 0 {
			pages = append(pages, page)
		}
	})
	return pages
}

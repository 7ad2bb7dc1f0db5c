// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Queue sizes of an endpoint. The peer has at most one message in flight.
const (
	sendWRs   = 16
	recvWRs   = 2
	cqEntries = 2 * sendWRs
)

// state is what an endpoint is waiting for, with the names and numbers that rping prints.
type state int

const (
	stateReadAdv       state = iota + 6 // server: location of the next ping
	stateReadComplete                   // server: its data
	stateWriteAdv                       // server: location for the pong; client: the ping was read
	stateWriteComplete                  // server: the pong was sent; client: it arrived
	stateDisconnected
	stateError
)

func (s state) String() string {
	switch s {
	case stateReadAdv:
		return "RDMA_READ_ADV"
	case stateReadComplete:
		return "RDMA_READ_COMPLETE"
	case stateWriteAdv:
		return "RDMA_WRITE_ADV"
	case stateWriteComplete:
		return "RDMA_WRITE_COMPLETE"
	}
	return fmt.Sprintf("state(%d)", int(s))
}

// endpoint is one end of a connection with its buffers. Only one goroutine uses it.
type endpoint struct {
	*run
	report *report
	id     *cm.ID
	pd     *verbs.PD
	cq     *verbs.CQ
	qp     *verbs.QP
	recv   *verbs.MR // the peer's message
	send   *verbs.MR // our message
	data   *verbs.MR // server: the ping, read and written back; client: the pong
	origin *verbs.MR // client: the ping
	wc     [1]verbs.WC
}

// errPeerGone reports that the peer closed the connection, or that its process is gone.
var errPeerGone = errors.New("the peer disconnected")

// newEndpoint returns an unconnected endpoint with its receive posted.
func (r *run) newEndpoint(vctx *verbs.Context, bind func(*verbs.QP) error, p *report) (e *endpoint, err error) {
	e = &endpoint{run: r, report: p}
	p.Device = vctx.Device().Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.pd, err = vctx.AllocPD(); err != nil {
		return e, err
	}
	if e.cq, err = vctx.CreateCQ(verbs.CQConfig{CQE: cqEntries}); err != nil {
		return e, err
	}
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq,
		Cap: verbs.QPCap{MaxSendWR: sendWRs, MaxRecvWR: recvWRs}})
	if err != nil {
		return e, err
	}
	if e.recv, err = e.pd.AllocMR(infoSize, verbs.AccessLocalWrite); err != nil {
		return e, err
	}
	if e.send, err = e.pd.AllocMR(infoSize, 0); err != nil {
		return e, err
	}
	// All rights on both sides: on iWARP hardware the sink of a Read is a target for the peer.
	const access = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if e.data, err = e.pd.AllocMR(r.Size, access); err != nil {
		return e, err
	}
	if !r.Server {
		if e.origin, err = e.pd.AllocMR(r.Size, access); err != nil {
			return e, err
		}
	}
	if err = bind(e.qp); err != nil {
		return e, err
	}
	return e, e.postRecv()
}

// close closes the connection and releases everything, the QP before the memory that its requests
// may use.
func (e *endpoint) close() error {
	return errors.Join(e.id.Close(), e.qp.Close(), e.recv.Close(), e.send.Close(), e.data.Close(), e.origin.Close(),
		e.cq.Close(), e.pd.Close())
}

func (e *endpoint) connected() {
	e.report.Local, e.report.Peer = e.id.LocalAddr().String(), e.id.RemoteAddr().String()
	ord, ird := e.id.Depths()
	e.trace("connected: %v, depths %d and %d", e.id, ord, ird)
}

func (e *endpoint) postRecv() error {
	sge, err := e.recv.SGE(0, infoSize)
	if err != nil {
		return err
	}
	_, err = e.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{sge}}})
	return err
}

// post posts a request for the first n bytes of mr.
func (e *endpoint) post(op verbs.WROpcode, mr *verbs.MR, n int, to bufferInfo) error {
	sge, err := mr.SGE(0, n)
	if err != nil {
		return err
	}
	_, err = e.qp.PostSend([]verbs.SendWR{{Opcode: op, Flags: verbs.SendSignaled, SGL: []verbs.SGE{sge},
		RemoteAddr: to.addr, RKey: to.rkey}})
	return err
}

// tell sends i to the peer. The buffer is free, because the peer has already answered the previous
// message.
func (e *endpoint) tell(i bufferInfo) error {
	i.put(e.send.Bytes())
	return e.post(verbs.WRSend, e.send, infoSize, bufferInfo{})
}

// receive waits for the peer's next message.
func (e *endpoint) receive(ctx context.Context, s state) (bufferInfo, error) {
	wc, err := e.await(ctx, verbs.WCRecv, s)
	if err != nil {
		return bufferInfo{}, err
	}
	if wc.ByteLen != infoSize {
		e.note("Received bogus data, size %d", wc.ByteLen)
		return bufferInfo{}, fmt.Errorf("received a message of %d bytes, not %d, waiting for %v", wc.ByteLen, infoSize,
			s)
	}
	i := parseInfo(e.recv.Bytes())
	return i, e.postRecv() // before we answer, after which the peer may send again
}

// await waits for the next completion with opcode op. Completions of Sends are skipped: they may
// arrive before or shortly after the peer's reaction.
func (e *endpoint) await(ctx context.Context, op verbs.WCOpcode, s state) (*verbs.WC, error) {
	for {
		if _, err := e.cq.Wait(ctx, e.wc[:]); err != nil {
			return nil, err
		}
		switch wc := &e.wc[0]; {
		case wc.Status != verbs.WCSuccess:
			return nil, e.failed(ctx, wc.Status, s)
		case wc.Opcode == op:
			return wc, nil
		case wc.Opcode != verbs.WCSend:
			e.note("wait for %v state %d", s, stateError)
			return nil, fmt.Errorf("completion of %v, waiting for %v", wc.Opcode, s)
		}
	}
}

// failed describes an unsuccessful completion. The error wraps errPeerGone if the peer closed the
// connection.
func (e *endpoint) failed(ctx context.Context, status verbs.WCStatus, s state) error {
	if status != verbs.WCWRFlushErr {
		e.note("cq completion failed status %d\nwait for %v state %d", status, s, stateError)
		if cause := e.qp.Err(); cause != nil {
			return fmt.Errorf("waiting for %v: %w: %w", s, status, cause)
		}
		return fmt.Errorf("waiting for %v: %w", s, status)
	}
	select {
	case <-e.id.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	e.note("%s DISCONNECT EVENT...\nwait for %v state %d", e.role(), s, stateDisconnected)
	err := e.id.Err()
	if errors.Is(err, io.EOF) {
		err = errPeerGone
	}
	return fmt.Errorf("waiting for %v: %w", s, err)
}

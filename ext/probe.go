// SPDX-License-Identifier: BSD-3-Clause

package ext

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/siw/mpa"
	"github.com/goverbs/goverbs/siw/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// Outcome is what a [Probe] found out.
type Outcome uint8

const (
	Undecided    Outcome = iota // nothing: ProbeResult.Reason says why
	Supported                   // the peer has the Atomics
	NotSupported                // the peer does not know the Atomics
)

// String returns "undecided", "supported" or "not supported".
func (o Outcome) String() string {
	switch o {
	case Undecided:
		return "undecided"
	case Supported:
		return "supported"
	case NotSupported:
		return "not supported"
	}
	return fmt.Sprintf("Outcome(%d)", uint8(o))
}

// ProbeResult is the answer of a [Probe].
type ProbeResult struct {
	Outcome Outcome
	// Value is what the word holds, as a number in host order, if the Outcome is Supported.
	Value uint64
	// Reason tells why the Outcome is another: it Is the verbs.WCStatus of the request, and holds what ended the
	// connection, a *verbs.TerminateError where the peer named the error. It is nil if the Outcome is Supported.
	Reason error
	// Others are completions of other requests that were in the CQ before the probe's: receives, if the QP's two queues
	// share the CQ.
	Others []verbs.WC
}

// Implementation constants.
const (
	probePoll  = time.Millisecond // between polls of a CQ whose events go to a shared channel
	probeFlush = 10 * time.Second // bound of the flush of a probe that was given up
)

// Probe finds out whether the peer of a connection has the [Atomics], by the means of RFC 7306 section 1.1: it posts a
// FetchAdd of 0 on the 64-bit integer at addr in the peer's region rkey, which must be aligned and allow atomics. If the
// peer has FetchAdd it has the others too. Immediate Data cannot be probed for, because it would consume a receive of the
// peer's.
//
// The QP must be connected and idle, and nobody else may poll its send CQ during the call. The sink is a region of the
// call's own.
//
// A peer without atomics answers with a Terminate message: the Outcome is NotSupported, and the connection is lost. If it
// ends in another way, for example because the key is wrong, the Outcome is Undecided and the connection is lost, too. The
// error is nil in all these cases. It is not nil where nothing could be asked: it Is verbs.ErrNotSupported if the own
// device has no FetchAdd, verbs.ErrState if the QP is not connected, verbs.ErrLimit if no atomics in progress were agreed
// on (ORD 0); the connection is as it was.
//
// When ctx is done before the answer is there, the error Is ctx.Err(). As a request cannot be taken back, the QP is then
// moved to the state ERR and the request flushed, before the sink is deregistered.
func Probe(ctx context.Context, qp *verbs.QP, addr uint64, rkey uint32) (res ProbeResult, err error) {
	if qp == nil {
		return res, fmt.Errorf("ext: Probe: no QP: %w", verbs.ErrInvalid)
	}
	if !qp.Context().Supports(verbs.OpFetchAdd) {
		return res, fmt.Errorf("ext: Probe on %s: %w: %v", qp.Context().Device().Name(), verbs.ErrNotSupported, verbs.OpFetchAdd)
	}
	attr, err := qp.Query()
	if err != nil {
		return res, fmt.Errorf("ext: Probe: %w", err)
	}
	if attr.State != verbs.QPStateRTS {
		return res, fmt.Errorf("ext: Probe: %w", &verbs.StateError{State: attr.State, Why: "a probe needs RTS"})
	}
	if attr.MaxRdAtomic == 0 {
		return res, fmt.Errorf("ext: Probe: %w", &verbs.LimitError{Name: "max_rd_atomic of the connection", Limit: 0, Value: 1})
	}
	if err := ctx.Err(); err != nil {
		return res, fmt.Errorf("ext: Probe: %w", err)
	}
	mr, err := qp.PD().AllocMR(8, verbs.AccessLocalWrite)
	if err != nil {
		return res, fmt.Errorf("ext: Probe: %w", err)
	}
	defer func() {
		if cerr := mr.Close(); cerr != nil {
			err = errors.Join(err, fmt.Errorf("ext: Probe: %w", cerr))
		}
	}()
	sge, err := mr.SGE(0, 8)
	if err != nil {
		return res, fmt.Errorf("ext: Probe: %w", err)
	}
	// The identifier is the only thing that tells the request's completion from others, also on error.
	wr := FetchAddWR([]verbs.SGE{sge}, addr, rkey, 0)
	wr.ID, wr.Flags = rand.Uint64(), verbs.SendSignaled
	if _, err := qp.PostSend([]verbs.SendWR{wr}); err != nil {
		return res, fmt.Errorf("ext: Probe: %w", err)
	}
	wc, err := awaitProbe(ctx, qp, wr.ID, &res.Others)
	if err != nil {
		return res, fmt.Errorf("ext: Probe: %w", errors.Join(err, giveUp(qp, wr.ID, &res.Others)))
	}
	res.judge(qp, &wc)
	if res.Outcome == Supported {
		res.Value = binary.NativeEndian.Uint64(mr.Bytes())
	}
	return res, nil
}

// judge finds the outcome in the request's completion and in what ended the connection.
func (r *ProbeResult) judge(qp *verbs.QP, wc *verbs.WC) {
	if wc.Status == verbs.WCSuccess {
		r.Outcome = Supported
		return
	}
	cause := qp.Err()
	if cause == nil {
		r.Reason = wc.Status
		return
	}
	r.Reason = fmt.Errorf("%w: %w", wc.Status, cause)
	var term *verbs.TerminateError
	if !errors.As(cause, &term) || !term.Remote {
		return
	}
	switch [3]uint8{term.Layer, term.Type, term.Code} {
	case [3]uint8{rdmap.LayerRDMAP, rdmap.ErrTypeOperation, rdmap.OperOpcode},
		// So it arrives from siw of Linux, which exchanges layer and type. By the RFCs it is an error of the set-up.
		[3]uint8{rdmap.LayerMPA, 0, mpa.ErrCodeIRD}:
		r.Outcome = NotSupported
	}
}

// awaitProbe waits for the completion with the identifier id and puts the others aside.
func awaitProbe(ctx context.Context, qp *verbs.QP, id uint64, others *[]verbs.WC) (verbs.WC, error) {
	wcs := make([]verbs.WC, 1)
	for {
		n, err := qp.SendCQ().Wait(ctx, wcs)
		if errors.Is(err, verbs.ErrSharedChannel) {
			n, err = pollShared(ctx, qp.SendCQ(), wcs)
		}
		if n == 1 {
			if wcs[0].ID == id && wcs[0].QPNum == qp.Num() {
				return wcs[0], nil
			}
			*others = append(*others, wcs[0])
			continue
		}
		if err != nil {
			return verbs.WC{}, err
		}
	}
}

// pollShared waits for a completion in a CQ whose events go to a channel of the caller's, where only the caller may
// wait.
func pollShared(ctx context.Context, cq *verbs.CQ, wcs []verbs.WC) (int, error) {
	tick := time.NewTicker(probePoll)
	defer tick.Stop()
	for {
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// giveUp flushes the request id and takes its completion out of the CQ.
func giveUp(qp *verbs.QP, id uint64, others *[]verbs.WC) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeFlush)
	defer cancel()
	if err := qp.Drain(ctx); err != nil {
		return err
	}
	// The completion is in the CQ, unless that is closed or has overflowed, which is what has been reported.
	wcs := make([]verbs.WC, 1)
	for {
		n, err := qp.SendCQ().Poll(wcs)
		if n == 0 || err != nil {
			return nil
		}
		if wcs[0].ID == id && wcs[0].QPNum == qp.Num() {
			return nil
		}
		*others = append(*others, wcs[0])
	}
}

// SPDX-License-Identifier: BSD-3-Clause

package ext

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/verbs"
)

// Outcome is the conclusion of a [Probe].
type Outcome uint8

const (
	Undecided    Outcome = iota // unknown; see ProbeResult.Reason
	Supported                   // the peer supports the Atomics
	NotSupported                // the peer does not support the Atomics
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

// ProbeResult is the result of a [Probe].
type ProbeResult struct {
	Outcome Outcome
	// Value is the value of the probed word, in host byte order, if Outcome is Supported.
	Value uint64
	// Reason is nil if Outcome is Supported. Otherwise it Is the verbs.WCStatus of the request, and
	// wraps the reason why the connection ended: a *verbs.TerminateError if the peer reported an
	// error.
	Reason error
	// Others are the completions of other requests that were polled before the probe's: for example
	// receives, if both queues of the QP use the same CQ.
	Others []verbs.WC
}

// Implementation constants.
const (
	probePoll  = time.Millisecond // interval for polling a CQ on a shared channel
	probeFlush = 10 * time.Second // time limit for flushing an abandoned probe
)

// Probe determines whether the peer of a connection supports the [Atomics], as RFC 7306 section 1.1
// suggests: it posts a FetchAdd of 0 on the 64-bit integer at addr in the peer's region rkey. addr
// must be aligned and the region must allow atomics. A peer that supports FetchAdd supports the
// others too. Immediate Data cannot be probed, because that would consume a receive of the peer.
//
// The QP must be connected and idle, and no other goroutine may poll its send CQ during the call.
// Probe registers its own sink.
//
// A peer without atomics responds with a Terminate message: the Outcome is NotSupported, and the
// connection is lost. If the connection ends for another reason, such as a wrong key, the Outcome
// is Undecided. The error is nil in all these cases.
//
// If Probe cannot send the request, the connection is unchanged and the error is not nil: it Is
// verbs.ErrNotSupported if the device of qp lacks FetchAdd, verbs.ErrState if the QP is not
// connected, and verbs.ErrLimit if the connection allows no atomics in progress (ORD 0).
//
// If ctx is done before the response arrives, the error Is ctx.Err(). A posted request cannot be
// withdrawn, so Probe then moves the QP to state ERR, which flushes the request, before it
// deregisters the sink.
func Probe(ctx context.Context, qp *verbs.QP, addr uint64, rkey uint32) (res ProbeResult, err error) {
	if qp == nil {
		return res, fmt.Errorf("ext: Probe: no QP: %w", verbs.ErrInvalid)
	}
	if !qp.Context().Supports(verbs.OpFetchAdd) {
		return res, fmt.Errorf("ext: Probe on %s: %w: %v", qp.Context().Device().Name(), verbs.ErrNotSupported,
			verbs.OpFetchAdd)
	}
	attr, err := qp.Query()
	if err != nil {
		return res, fmt.Errorf("ext: Probe: %w", err)
	}
	if attr.State != verbs.QPStateRTS {
		return res, fmt.Errorf("ext: Probe: %w", &verbs.StateError{State: attr.State, Why: "a probe needs RTS"})
	}
	if attr.MaxRdAtomic == 0 {
		return res, fmt.Errorf("ext: Probe: %w",
			&verbs.LimitError{Name: "max_rd_atomic of the connection", Limit: 0, Value: 1})
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
	// Only the ID distinguishes the completion of this request from others, on errors too.
	wr := FetchAddWR(verbs.Remote{Addr: addr, Length: 8, RKey: rkey}, 0, sge)
	wr.ID = rand.Uint64()
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

// judge determines the outcome from the completion of the request and the reason why the connection
// ended.
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
		// Linux siw sends the error like this because it swaps layer and type. In the RFCs these
		// numbers mean a connection setup error.
		[3]uint8{rdmap.LayerMPA, 0, mpa.ErrCodeIRD}:
		r.Outcome = NotSupported
	}
}

// awaitProbe waits for the completion of request id and collects the others.
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

// pollShared waits for a completion in a CQ whose events go to the caller's channel. It polls,
// because only the caller may wait on that channel.
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

// giveUp flushes request id and polls its completion.
func giveUp(qp *verbs.QP, id uint64, others *[]verbs.WC) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeFlush)
	defer cancel()
	if err := qp.Drain(ctx); err != nil {
		return err
	}
	// The completion is in the CQ unless the CQ is closed or overflowed, which was already
	// reported.
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

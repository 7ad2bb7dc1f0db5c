// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// waysOfPosting are devices whose requests go to the library directly, through a ledger, and
// through one that may hold them back. sign is that of the errors that a post of their library
// returns.
var waysOfPosting = map[string]struct {
	device string
	vendor uint32
	sign   int
}{
	"direct": {"fake0", 0, 1},
	"rxe":    {"fake0", 0xffffff, 1}, // RXE_VENDOR_ID
	"siw":    {"fake1", 0, -1},
}

// newPostingRig opens a device after change of its attributes, and brings a QP to RTS.
func newPostingRig(t *testing.T, way string, change func(*fakeverbs.Attr)) *rig {
	t.Helper()
	fakeverbs.Start(t)
	at, w := fakeverbs.Fake0, waysOfPosting[way]
	if w.device == "fake1" {
		at = fakeverbs.Fake1
	}
	attr := fakeverbs.DeviceAttr(at)
	if w.vendor != 0 {
		attr.VendorID = w.vendor
	}
	change(&attr)
	fakeverbs.SetDeviceAttr(at, attr)
	r := openRig(t, w.device)
	r.up(r.qp)
	return r
}

// TestChecksOfEveryWay: a request that no device may get does not reach the library, and one that
// is just right does, however requests get there.
func TestChecksOfEveryWay(t *testing.T) {
	const to, key = 1 << 40, 7
	peer := func(n int) verbs.Remote { return verbs.Remote{Addr: to, RKey: key, Length: uint64(n)} }
	for way := range waysOfPosting {
		for _, mostRead := range []int{0, 1} { // elements of a Read
			t.Run(fmt.Sprintf("%s, Reads of %d elements", way, mostRead), func(t *testing.T) {
				r := newPostingRig(t, way, func(a *fakeverbs.Attr) { a.MaxSGERd = mostRead })
				most := r.qp.Cap().MaxInlineData
				request := func(op verbs.WROpcode, n int, flags verbs.SendFlags) verbs.SendWR {
					return verbs.SendWR{Opcode: op, RemoteAddr: to, RKey: key, Flags: flags,
						SGL: []verbs.SGE{r.sge(0, n)}}
				}
				inline := func(op verbs.WROpcode, n int) verbs.SendWR { return request(op, n, verbs.SendInline) }
				read := func(otherwise error) error { // the error of a Read of one element
					if mostRead == 0 {
						return verbs.ErrLimit
					}
					return otherwise
				}
				many := verbs.SendWR{Opcode: verbs.WRSend, SGL: make([]verbs.SGE, r.qp.Cap().MaxSendSGE+1)}
				for name, c := range map[string]struct {
					wr   verbs.SendWR
					want error
				}{
					"Read":                        {request(verbs.WRRDMARead, 8, 0), read(nil)},
					"Read of two elements":        {verbs.Read(peer(16), r.sge(0, 8), r.sge(8, 8)), verbs.ErrLimit},
					"Read beyond the Remote":      {verbs.Read(peer(7), r.sge(0, 8)), read(verbs.ErrBounds)},
					"inline Read":                 {inline(verbs.WRRDMARead, 8), read(verbs.ErrInvalid)},
					"inline Send":                 {inline(verbs.WRSend, most), nil},
					"inline Send, too long":       {inline(verbs.WRSend, most+1), verbs.ErrLimit},
					"inline Write":                {inline(verbs.WRRDMAWrite, most), nil},
					"inline Write, too long":      {inline(verbs.WRRDMAWrite, most+1), verbs.ErrLimit},
					"Write":                       {verbs.Write(peer(8), r.sge(0, 8)), nil},
					"Write beyond the Remote":     {verbs.Write(peer(7), r.sge(0, 8)), verbs.ErrBounds},
					"unknown flag":                {request(verbs.WRSend, 8, 1<<6), verbs.ErrInvalid},
					"too many elements":           {many, verbs.ErrLimit},
					"an operation of nobody":      {request(99, 8, 0), verbs.ErrInvalid},
					"an operation of few devices": {verbs.SendWR{Opcode: verbs.WRImmData}, verbs.ErrNotSupported},
				} {
					before := fakeverbs.Calls("ibv_post_send")
					n, err := r.qp.PostSend([]verbs.SendWR{c.wr})
					posted := fakeverbs.Calls("ibv_post_send") - before
					if c.want != nil {
						require.ErrorIs(t, err, c.want, name)
						require.Zero(t, n+posted, name)
						continue
					}
					require.NoError(t, err, name)
					require.Equal(t, 2, n+posted, name)
					require.Equal(t, c.wr.Flags&verbs.SendInline != 0, fakeverbs.LastPosted()[0].Inline != nil, name)
					fakeverbs.CompleteSend(r.qp.Num(), 1, 0)
					r.poll()
				}
			})
		}
	}
}

// TestRefusedBehindRefused: if the library refuses a request of a list, its error is the list's,
// though a later request is wrong. If it takes what it gets, the wrong request's is.
func TestRefusedBehindRefused(t *testing.T) {
	for way, w := range waysOfPosting {
		t.Run(way, func(t *testing.T) {
			r := newPostingRig(t, way, func(*fakeverbs.Attr) {})
			srq, err := r.pd.CreateSRQ(verbs.SRQAttr{})
			require.NoError(t, err)
			wrong := make([]verbs.SGE, 9)
			receives := []verbs.RecvWR{{ID: 1}, {ID: 2}, {ID: 3, SGL: wrong}}
			for call, post := range map[string]func() (int, error){
				"ibv_post_send": func() (int, error) {
					return r.qp.PostSend(append(writes(r.mr, 2), verbs.SendWR{Opcode: verbs.WRSend, SGL: wrong}))
				},
				"ibv_post_recv":     func() (int, error) { return r.qp.PostRecv(receives) },
				"ibv_post_srq_recv": func() (int, error) { return srq.PostRecv(receives) },
			} {
				for taken := range 3 {
					if taken < 2 {
						fakeverbs.FailPost(call, 1,
							fakeverbs.PostFailure{Index: taken, Result: w.sign * int(syscall.ENOMEM)})
					}
					n, err := post()
					require.Equal(t, taken, n, call)
					want, other := verbs.ErrQueueFull, verbs.ErrLimit
					if taken == 2 {
						want, other = other, want
					}
					require.ErrorIs(t, err, want, "%s: %d", call, taken)
					require.NotErrorIs(t, err, other, "%s: %d", call, taken)
				}
			}
		})
	}
}

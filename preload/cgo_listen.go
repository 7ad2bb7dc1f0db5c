// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// listener delivers connection requests of peers to the program.
type listener struct {
	*cm.Listener
	owner unsafe.Pointer
	done  chan struct{} // closed once no more requests are delivered
}

// cmRequest waits until the program accepts or rejects it.
type cmRequest struct{ *cm.Request }

func (r *cmRequest) Close() error { return r.Reject(nil) }

//export rnic_listen
func rnic_listen(owner unsafe.Pointer, h C.uint32_t, at *C.struct_rnic_addr, backlog, afOnly C.int, to *C.uint32_t,
	port *C.int) C.int {
	vctx, ok := get[*ibv_context](h)
	if !ok {
		return einval
	}
	addr := fromC(at)
	ln, err := cm.Listen(context.Background(), addr.String(),
		cm.Config{Device: device, Context: vctx.Context, Backlog: max(0, int(backlog)), AFOnly: afOnly != 0})
	if err != nil {
		return errno(err)
	}
	if got, err := netip.ParseAddrPort(ln.Addr().String()); err == nil {
		*port = C.int(got.Port())
	}
	l := &listener{ln, owner, make(chan struct{})}
	go l.requests()
	return keep(l, to)
}

// acceptPause is the pause after a failed accept.
const acceptPause = 10 * time.Millisecond

func (l *listener) requests() {
	defer close(l.done)
	for {
		r, err := l.Accept(context.Background())
		if errors.Is(err, verbs.ErrClosed) {
			return
		}
		if err != nil {
			say("rdma_listen: %v", err)
			time.Sleep(acceptPause)
			continue
		}
		e := C.struct_rnic_cm_event{event: C.int(cm.EventConnectRequest)}
		if e.request = objects.put(&cmRequest{r}); e.request == 0 {
			_ = r.Reject(nil)
			continue
		}
		// The peer's initiator depth is the number of Reads that this side must answer
		// concurrently. -1 = not specified.
		ord, ird := r.Depths()
		e.responder_resources, e.initiator_depth = depth(ord), depth(ird)
		toC(r.LocalAddr(), &e.local)
		toC(r.RemoteAddr(), &e.remote)
		setPrivate(&e, r.PrivateData())
		tellCM(l.owner, &e)
	}
}

func depth(n int) C.int {
	if n < 0 {
		return math.MaxInt8 + 1 // the RNIC supports no more (usiw.Config.MaxIRD)
	}
	return C.int(min(n, math.MaxUint8))
}

func (l *listener) Close() error {
	err := l.Listener.Close()
	<-l.done
	return err
}

//export rnic_reject
func rnic_reject(h C.uint32_t, private unsafe.Pointer, n C.uint32_t) C.int {
	r, ok := get[*cmRequest](h)
	if !ok {
		return einval
	}
	objects.take(h)
	return errno(r.Reject(C.GoBytes(private, C.int(n))))
}

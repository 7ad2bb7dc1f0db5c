// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// The ends of connections with traffic of every kind in progress, in both directions.

// loadMemory is the size of the memory of a side under load.
const loadMemory = 1 << 17

// remote is memory of the other side: its address and key.
type remote struct {
	addr uint64
	rkey uint32
}

// target registers the side's memory for every kind of access and returns it as private data.
func (s *side) target() (t []byte) {
	s.t.Helper()
	mr := s.region(s.pd, loadMemory, allRights)
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, mr.Addr()), mr.RKey())
}

func targetOf(private []byte) remote {
	return remote{binary.BigEndian.Uint64(private), binary.BigEndian.Uint32(private[8:])}
}

// loadWindow is the number of requests in progress, loadReceives the number of receives and thus of
// messages sent on a connection.
const loadWindow, loadReceives = 8, 100

// load posts requests of every kind, calling each after each success, until one fails or each
// returns false. It returns the number of successful requests, after all have completed.
func (s *side) load(to remote, each func(n int) bool) (good int) {
	s.t.Helper()
	sent, messages, open, ended := 0, 0, 0, false
	for {
		for !ended && open < loadWindow {
			var wrs []verbs.SendWR
			at := to.addr + uint64(sent%4)*4096
			switch kind := sent % 6; {
			case kind == 0:
				wrs = []verbs.SendWR{{Opcode: verbs.WRRDMARead, SGL: s.sgl(0, 1<<15), RemoteAddr: at, RKey: to.rkey}}
			case kind == 1:
				wrs = []verbs.SendWR{ext.MaskedFetchAddWR(verbs.Remote{Addr: to.addr, Length: 8, RKey: to.rkey}, 1,
					1<<31, s.sgl(1<<16, 8)...)}
			case kind == 2 && messages < loadReceives:
				pair := ext.WriteImm64WRs(verbs.Remote{Addr: at, Length: 1000, RKey: to.rkey}, uint64(sent),
					s.sgl(0, 1000)...)
				wrs, messages = pair[:], messages+1
			case kind == 3 && messages < loadReceives:
				wrs, messages = []verbs.SendWR{{Opcode: verbs.WRSend, SGL: s.sgl(0, 100)}}, messages+1
			case kind == 4:
				wrs = []verbs.SendWR{ext.MaskedCmpSwapWR(verbs.Remote{Addr: to.addr + 8, Length: 8, RKey: to.rkey},
					uint64(sent-6), ^uint64(0), uint64(sent), ^uint64(0), s.sgl(1<<16+8, 8)...)}
			default:
				wrs = []verbs.SendWR{{Opcode: verbs.WRRDMAWrite, SGL: s.sgl(0, 1<<15), RemoteAddr: at, RKey: to.rkey}}
			}
			for i := range wrs {
				wrs[i].Flags |= verbs.SendSignaled
			}
			n, err := s.qp.PostSend(wrs)
			sent++
			open += n
			if err != nil {
				ended = true // the QP has failed
			}
		}
		if open == 0 {
			return good
		}
		wc := s.sent()
		open--
		if wc.Status != verbs.WCSuccess {
			ended = true
		} else if good++; !each(good) {
			ended = true
		}
	}
}

// receives posts the receives for a load and for the message that opens it.
func (s *side) receives() {
	s.t.Helper()
	for i := range loadReceives + 1 {
		s.recv(uint64(i), s.sgl(1<<16+4096, 1000))
	}
}

// opens is called by the connecting side, opened by the other one, which must not send first (RFC
// 5044 section 7.1.2).
func (s *side) opens()  { s.t.Helper(); s.run(verbs.SendWR{Opcode: verbs.WRSend}) }
func (s *side) opened() { s.t.Helper(); s.ok(s.received(), verbs.WCRecv) }

// loaded runs a load on both sides of a link until it ends, and calls each after each success of
// the kernel's side. It returns the number of successful requests of both.
func loaded(l *link, each func(n int)) (good int) {
	l.t.Helper()
	targets := []remote{targetOf(l.kernel.target()), targetOf(l.user.target())}
	done := make(chan int)
	sides := []*side{l.user, l.kernel}
	for _, s := range sides {
		s.receives()
	}
	for i, s := range sides {
		go func() {
			done <- s.load(targets[i], func(n int) bool {
				if s == l.kernel {
					each(n)
				}
				return true
			})
		}()
	}
	for range sides {
		good += result(l.t, "the end of the load", done)
	}
	return good
}

// loadParam returns connection parameters that announce the side's memory to the other.
func (s *side) loadParam() cm.ConnParam {
	s.t.Helper()
	return cm.ConnParam{PrivateData: s.target(), ResponderResources: 8, InitiatorDepth: 8}
}

// dials connects a new side to address.
func dials(t *testing.T, open func() *side, address string) *side {
	t.Helper()
	s := open()
	s.resolve(address)
	s.receives()
	require.NoError(t, s.id.Connect(soon(t), s.qp, s.loadParam()))
	return s
}

// killRounds is how many processes are killed, half of them in either role.
const killRounds = 50

// TestModuleKilled: a process with traffic in progress and mapped rings is killed. The other side,
// either siw or the user-space RNIC, sees the end of the connection and all of its completions.
func TestModuleKilled(t *testing.T) {
	needModule(t)
	unharmed(t)
	for round := range killRounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			open := func() *side { return kernelSide(t, loadMemory) }
			if round%4 >= 2 {
				nic := here.nic(t, usiw.Config{})
				open = func() *side { return newSide(t, nic, loadMemory) }
			}
			var s *side
			var p *testprogram.Program
			if round%2 == 0 { // the process connects
				s = open()
				ln := s.listen(kernelHost)
				s.open()
				p = child(t, "TestModuleKilledChild", ln.Addr().String())
				req, err := ln.Accept(soon(t))
				require.NoError(t, err)
				require.NoError(t, req.BindQP(s.qp))
				s.receives()
				s.id, err = req.Accept(soon(t), s.qp, s.loadParam())
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, s.id.Close()) })
				s.opened()
			} else {
				p = child(t, "TestModuleKilledChild", "listen")
				_, address, _ := strings.Cut(p.Out.Await(t, "end of address"), "address ")
				s = dials(t, open, strings.Fields(address)[0])
				s.opens()
			}
			at := 1 + rand.IntN(60)
			good := s.load(targetOf(s.id.PrivateData()), func(n int) bool {
				if n == at {
					_ = p.Signal(syscall.SIGKILL)
				}
				return true
			})
			require.GreaterOrEqual(t, good, at)
			require.Error(t, s.ended())
			require.NoError(t, p.Kill())
		})
	}
}

// TestModuleKilledChild is the process that is killed: it runs a load once connected.
func TestModuleKilledChild(t *testing.T) {
	address := childArg(t)
	var s *side
	if address != "listen" {
		s = dials(t, func() *side { return kernelSide(t, loadMemory) }, address)
		s.opens()
	} else {
		s = kernelSide(t, loadMemory)
		ln := s.listen(kernelHost)
		s.open()
		fmt.Fprintln(os.Stderr, "address", ln.Addr(), "end of address")
		req, err := ln.Accept(soon(t))
		require.NoError(t, err)
		require.NoError(t, req.BindQP(s.qp))
		s.receives()
		s.id, err = req.Accept(soon(t), s.qp, s.loadParam())
		require.NoError(t, err)
		s.opened()
	}
	s.load(targetOf(s.id.PrivateData()), func(n int) bool {
		if n == 1 {
			fmt.Fprintln(os.Stderr, "the load begins")
		}
		return true
	})
	fmt.Fprintln(os.Stderr, "the load has ended")
	time.Sleep(waitLimit)
}

// TestModuleCut: the TCP connection of either side is killed in the middle of traffic in both
// directions. Both sides end, and all requests complete.
func TestModuleCut(t *testing.T) {
	needModule(t)
	unharmed(t)
	for round := range 10 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			l := here.link(t, linkConfig{memory: loadMemory, kernelActive: round%2 == 0})
			at := 1 + rand.IntN(60)
			good := loaded(l, func(n int) {
				if n == at {
					here.cut(t, l, round%4 < 2)
				}
			})
			for _, s := range []*side{l.user, l.kernel} {
				require.Error(t, s.ended())
			}
			require.GreaterOrEqual(t, good, at, "user space: %v; siw: %v", l.user.ended(), l.kernel.ended())
		})
	}
}

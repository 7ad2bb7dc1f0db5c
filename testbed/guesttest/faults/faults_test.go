// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/verbs"
)

// dropped returns the number of packets dropped by a device's queueing discipline, for example
// netem.
func dropped(t *testing.T, before []string, dev string) int {
	t.Helper()
	args := append(before, "tc", "-s", "qdisc", "show", "dev", dev)
	out := command(t, args[0], args[1:]...)
	m := regexp.MustCompile(`dropped (\d+)`).FindStringSubmatch(out)
	require.NotNil(t, m, out)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

// TestOneHostLoss: packets on the loopback device are lost, late, out of order and duplicated;
// traffic still works.
func TestOneHostLoss(t *testing.T) {
	for _, how := range [][]string{
		{"loss", "4%", "delay", "3ms"},
		{"delay", "2ms", "reorder", "25%", "duplicate", "5%"},
	} {
		t.Run(how[0], func(t *testing.T) {
			each(t, "siw0", []string{"usiw", "siw0"}, func(t *testing.T, s *site) {
				n := s.serve(t)
				c := s.dial(t, n.Addr())
				undo(t, "tc", "qdisc", "del", "dev", "lo", "root")
				command(t, "tc", append([]string{"qdisc", "add", "dev", "lo", "root", "netem"}, how...)...)
				for i := 0; i < 4 || how[0] == "loss" && dropped(t, nil, "lo") < 3; i++ {
					require.Less(t, i, 40, "nothing was lost")
					require.NoError(t, c.EachStep())
				}
				// Connections can also be established under these conditions.
				s.works(t, n.Addr())
			})
		})
	}
}

// TestOneHostSocketKilled: one of several connections loses its socket.
func TestOneHostSocketKilled(t *testing.T) {
	each(t, "siw0", []string{"usiw", "siw0"}, func(t *testing.T, s *site) {
		n := s.serve(t)
		by := s.dial(t, n.Addr())
		v := newVictim(t, s.dial(t, n.Addr()))
		local := addrPort(t, v.ID.LocalAddr())
		command(t, "ss", "-K", "src", local.Addr().String(), "sport", "=", ":"+strconv.Itoa(int(local.Port())))
		require.ErrorIs(t, v.ends(), map[string]error{"usiw": syscall.ECONNABORTED, "siw0": io.EOF}[s.name])
		require.NoError(t, by.EachStep(), "another connection")
		s.works(t, n.Addr())
	})
}

func addrPort(t *testing.T, a any) netip.AddrPort {
	t.Helper()
	with, ok := a.(interface{ AddrPort() netip.AddrPort })
	require.True(t, ok, "%T", a)
	return with.AddrPort()
}

// TestOneHostProcessKilled: the peer's process is killed, as server and as client.
func TestOneHostProcessKilled(t *testing.T) { processKilled(t, "usiw", "siw0", "rxe0") }

// TestIBProcessKilled: the same on devices with InfiniBand semantics.
func TestIBProcessKilled(t *testing.T) { processKilled(t, "ib:usiw", "ib:siw0", "ib:rxe0") }

func processKilled(t *testing.T, names ...string) {
	each(t, "siw0", names, func(t *testing.T, s *site) {
		n := s.serve(t)
		by := s.dial(t, n.Addr())
		t.Run("server", func(t *testing.T) {
			p := start(t, roleServe, s.name, s.listen)
			v := newVictim(t, s.dial(t, p.line()))
			p.kill()
			// When a process dies, a stream from which it has not read everything is reset.
			err := v.ends()
			require.True(t, errors.Is(err, io.EOF) || strings.HasSuffix(s.name, "usiw") &&
				errors.Is(err, syscall.ECONNRESET), "%v", err)
			require.NoError(t, by.EachStep(), "another connection")
		})
		t.Run("client", func(t *testing.T) {
			// Close of the node waits until its connections have ended.
			inner := s.serve(t)
			p := start(t, roleStay, s.name, inner.Addr())
			require.Equal(t, "connected", p.line())
			p.kill()
			began := time.Now()
			require.NoError(t, inner.Close())
			require.Less(t, time.Since(began), soon)
			require.NoError(t, by.EachStep(), "another connection")
		})
		t.Run("server before it answers", func(t *testing.T) {
			p := start(t, roleMute, s.name, s.listen)
			address := p.line()
			ended := make(chan error, 1)
			go func() {
				_, err := load.Dial(s.dev, address, load.Options{Counts: new(load.Counts)})
				ended <- err
			}()
			require.Equal(t, "request", p.line())
			p.kill()
			err := closes(t, ended, "Connect")
			t.Logf("Connect: %v", err)
			var ce *cm.OpError
			require.ErrorAs(t, err, &ce)
			require.Equal(t, "Connect", ce.Op)
			require.False(t, load.Wrong(err))
			require.ErrorIs(t, err, map[string]error{"usiw": io.EOF, "siw0": cm.ErrRejected,
				"rxe0": cm.ErrRejected}[strings.TrimPrefix(s.name, "ib:")])
		})
		s.works(t, n.Addr())
	})
}

// TestOneHostLinkDown: the interface below kernel siw goes down and comes up again.
func TestOneHostLinkDown(t *testing.T) {
	for _, c := range []struct{ device, netdev, ip6 string }{{"siw0", "d0", "fd00:77::1/64"},
		{"rxe0", "e0", "fd00:78::1/64"}} {
		t.Run(c.device, func(t *testing.T) {
			s := open(t, c.device)
			n := s.serve(t)
			watcher, err := s.dev.Open()
			require.NoError(t, err)
			defer func() { require.NoError(t, watcher.Close()) }()
			v := newVictim(t, s.dial(t, n.Addr()))
			undo(t, "ip", "addr", "add", c.ip6, "dev", c.netdev)
			undo(t, "ip", "link", "set", c.netdev, "up")
			command(t, "ip", "link", "set", c.netdev, "down")
			port := awaitEvent(t, watcher, verbs.EventPortErr)
			require.NotEqual(t, verbs.PortActive, port.State)
			t.Logf("port %v", port.State)
			// siw of Linux 6.1 ends its connections when the interface goes down. siw of 6.12 does
			// not, and rxe sends to itself without the interface: these connections survive.
			outlives := c.device == "rxe0" || linuxAfter61()
			if !outlives {
				require.ErrorIs(t, v.ends(), io.EOF)
			}
			command(t, "ip", "link", "set", c.netdev, "up")
			port = awaitEvent(t, watcher, verbs.EventPortActive)
			require.Equal(t, verbs.PortActive, port.State)
			if outlives {
				require.NoError(t, v.ID.Disconnect())
				require.ErrorIs(t, v.ends(), verbs.ErrClosed)
			}
			s.works(t, s.serve(t).Addr())
		})
	}
}

// linuxAfter61 reports whether the guest's kernel is newer than the default one.
func linuxAfter61() bool { return os.Getenv("BED_KERNEL") != "6.1" }

// awaitEvent waits for an event of port 1 and returns the port's attributes afterwards.
func awaitEvent(t *testing.T, c *verbs.Context, want verbs.EventType) verbs.PortAttr {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for {
		ev, err := c.WaitEvent(ctx)
		require.NoError(t, err, "waiting for %v", want)
		if ev.Type == want {
			require.Equal(t, 1, ev.Port)
			attr, err := c.QueryPort(1)
			require.NoError(t, err)
			return attr
		}
	}
}

// TestOneHostPacketsDropped: for a while all packets are dropped; then traffic continues.
func TestOneHostPacketsDropped(t *testing.T) {
	each(t, "siw0", []string{"usiw", "siw0"}, func(t *testing.T, s *site) {
		n := s.serve(t)
		c := s.dial(t, n.Addr())
		require.NoError(t, c.EachStep())
		port := strconv.Itoa(int(addrPort(t, c.ID.RemoteAddr()).Port()))
		undo(t, "nft", "delete", "table", "inet", "faults")
		command(t, "nft", "add table inet faults; add chain inet faults out { type filter hook output priority 0; };"+
			"add rule inet faults out tcp dport "+port+" counter drop; add rule inet faults out tcp sport "+port+
			" counter drop")
		done := make(chan error, 1)
		go func() { done <- c.EachStep() }()
		select {
		case err := <-done:
			require.Fail(t, "traffic without packets", "%v", err)
		case <-time.After(2 * time.Second):
		}
		require.Regexp(t, `counter packets [1-9]`, command(t, "nft", "list", "table", "inet", "faults"))
		command(t, "nft", "delete table inet faults")
		require.NoError(t, closes(t, done, "traffic to go on"))
		require.NoError(t, c.EachStep())
	})
}

// TestTwoHostsLoss: a cable between two devices loses packets.
func TestTwoHostsLoss(t *testing.T) {
	t.Run("rxe", func(t *testing.T) {
		client, server := open(t, "rxe1"), open(t, "rxe2")
		n := server.serve(t)
		c := client.dialBy(t, n.Addr(), load.Options{Source: rxe1})
		undo(t, "tc", "qdisc", "del", "dev", "e1", "root")
		command(t, "tc", "qdisc", "add", "dev", "e1", "root", "netem", "loss", "3%", "delay", "1ms")
		for i := 0; i < 1 || dropped(t, nil, "e1") < 1; i++ {
			require.Less(t, i, 40, "nothing was lost")
			require.NoError(t, c.EachStep())
		}
		command(t, "tc", "qdisc", "del", "dev", "e1", "root")
	})
	t.Run("siw", func(t *testing.T) {
		open(t, "siw1")
		h1, h2 := []string{"ip", "netns", "exec", "h1"}, []string{"ip", "netns", "exec", "h2"}
		p := start(t, roleServe, "siw2", listenOn["siw2"], h2...)
		address := p.line()
		undo(t, "ip", "netns", "exec", "h1", "tc", "qdisc", "del", "dev", "d1", "root")
		command(t, "ip", "netns", "exec", "h1", "tc", "qdisc", "add", "dev", "d1", "root", "netem", "loss", "3%",
			"delay", "3ms")
		for i := 0; i < 1 || dropped(t, h1, "d1") < 3; i++ {
			require.Less(t, i, 10, "nothing was lost")
			c := start(t, roleUse, "siw1", address, h1...)
			require.Equal(t, "connected", c.line())
			ended := make(chan error, 1)
			go func() { ended <- c.cmd.Wait() }()
			select {
			case err := <-ended:
				c.over = true
				require.NoError(t, err)
			case <-time.After(2 * load.Limit):
				require.Fail(t, "traffic has stopped")
			}
		}
		p.leave()
	})
}

// dropFirst makes the cable between rxe1 and rxe2 lose the first packet with an opcode of
// InfiniBand's transport. The opcode is the first byte after the UDP header.
func dropFirst(t *testing.T, opcode string) (lost func() bool) {
	t.Helper()
	_ = exec.Command("nft", "delete", "table", "inet", "faults").Run()
	undo(t, "nft", "delete", "table", "inet", "faults")
	command(t, "nft", "add table inet faults; add chain inet faults in { type filter hook input priority 0; };"+
		"add rule inet faults in udp dport 4791 @th,64,8 "+opcode+" numgen inc mod 4000000000 0 counter drop")
	return func() bool {
		return strings.Contains(command(t, "nft", "list", "table", "inet", "faults"), "counter packets 1 ")
	}
}

// The RC opcodes in a packet's header.
const (
	packetWrite = "0x0a" // RDMA WRITE Only
	packetRead  = "0x0c" // RDMA READ Request
)

// TestTwoHostsFence: a fenced request followed by Reads is lost.
func TestTwoHostsFence(t *testing.T) {
	client, server := open(t, "rxe1"), open(t, "rxe2")
	c := client.dialBy(t, server.serve(t).Addr(), load.Options{Source: rxe1})
	read := verbs.SendWR{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled}
	write := verbs.SendWR{Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}
	fenced := func(wr verbs.SendWR) verbs.SendWR {
		wr.Flags |= verbs.SendFence
		return wr
	}
	for _, run := range []struct {
		name, opcode string
		list         []verbs.SendWR
	}{
		{"Write", packetWrite, []verbs.SendWR{read, fenced(write), read}},
		{"Read", packetRead, []verbs.SendWR{fenced(read)}},
	} {
		t.Run(run.name, func(t *testing.T) {
			lost := dropFirst(t, run.opcode)
			for i := range run.list {
				run.list[i].ID = uint64(i)
			}
			_, err := c.QP.PostSend(run.list)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), load.Limit)
			defer cancel()
			for done := 0; done < len(run.list); {
				var wcs [4]verbs.WC
				n, err := c.CQ.Wait(ctx, wcs[:])
				require.NoError(t, err, "%d of %d requests have completed", done, len(run.list))
				for _, wc := range wcs[:n] {
					require.NoError(t, wc.Err())
					require.EqualValues(t, done, wc.ID)
					done++
				}
			}
			require.True(t, lost(), "nothing was lost")
		})
	}
	require.NoError(t, c.EachStep())
}

// TestTwoHostsLostInC: without goverbs, rxe never resends some requests.
func TestTwoHostsLostInC(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe1")
	// A bind that is executed again fails. rxe of Linux 6.1 stops there, rxe of 6.12 ends the
	// connection.
	boundTwice := "0 of 2"
	if linuxAfter61() {
		boundTwice = "request 0: Work Request Flushed Error\nrequest 1: Work Request Flushed Error\n2 of 2"
	}
	program := filepath.Join(t.TempDir(), "lost")
	command(t, "cc", "-o", program, "testdata/lost/lost.c", "-libverbs")
	for _, run := range []struct{ list, opcode, seconds, want string }{
		{"RWR", packetWrite, "30", "3 of 3"},
		{"RfWR", packetWrite, "2", "1 of 3"},
		{"fR", packetRead, "2", "0 of 1"},
		{"WB", packetWrite, "2", boundTwice},
	} {
		t.Run(run.list, func(t *testing.T) {
			lost := dropFirst(t, run.opcode)
			out := command(t, program, "rxe1", "10.78.0.1", "rxe2", "10.78.0.2", run.list, run.seconds)
			require.Equal(t, run.want, strings.TrimSpace(out), "completions")
			require.True(t, lost(), "nothing was lost")
		})
	}
}

// rxe1 is the address at the other end of the cable.
var rxe1 = netip.MustParseAddrPort("10.78.0.1:0")

// TestTwoHostsCableCut: rxe gives up on an unreachable peer; a short interruption has no effect.
func TestTwoHostsCableCut(t *testing.T) {
	client := open(t, "rxe1")
	rdmatest.KernelDevice(t, "rxe2")
	// The server is a process that can be killed: when no packets arrive, it does not notice that
	// its client has given up.
	p := start(t, roleServe, "rxe2", listenOn["rxe2"])
	address := p.line()
	undo(t, "nft", "delete", "table", "inet", "faults")
	cut := func() {
		command(t, "nft", "add table inet faults; add chain inet faults in { type filter hook input priority 0; };"+
			"add rule inet faults in udp dport 4791 counter drop")
	}
	repair := func() { command(t, "nft", "delete table inet faults") }
	// Few retries, so that the test need not wait long.
	v := newVictim(t, client.dialBy(t, address, load.Options{Source: rxe1, Retries: 2}))
	by := client.dialBy(t, address, load.Options{Source: rxe1})
	cut()
	done := make(chan error, 1)
	go func() { done <- by.EachStep() }()
	packets := regexp.MustCompile(`counter packets [1-9]`)
	require.Eventually(t, func() bool {
		return packets.MatchString(
			command(t, "nft", "list", "table", "inet", "faults"))
	}, time.Minute, 100*time.Millisecond, "nothing is dropped")
	repair()
	require.NoError(t, closes(t, done, "traffic to go on"))

	cut()
	_, err := v.QP.PostSend([]verbs.SendWR{{ID: 1, Opcode: verbs.WRRDMAWrite, Flags: verbs.SendSignaled}})
	require.NoError(t, err)
	c := closes(t, v.completed, "the completion of a Write that does not arrive")
	require.NoError(t, c.err)
	require.EqualValues(t, 1, c.wc.ID)
	require.ErrorIs(t, c.wc.Err(), verbs.WCRetryExcErr)
	require.ErrorIs(t, v.ends(), verbs.WCRetryExcErr)
	repair()
	require.NoError(t, by.EachStep(), "another connection")
	require.NoError(t, client.dialBy(t, address, load.Options{Source: rxe1}).EachStep())
}

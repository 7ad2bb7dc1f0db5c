// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// The hosts of TestLongListeners and their addresses.
const (
	serverHost   = "10.99.0.1"
	attackerHost = "10.99.0.2"
	honestHost   = "10.99.0.3"
	serverHost6  = "fd99::1"
	honestHost6  = "fd99::3"
	serverPort   = "7306"
)

const (
	callsPerSecond = 1000
	dialsPerSecond = 50
	dialsMeasured  = 300
	burst          = 1000            // concurrent dials
	stays          = 7 * time.Second // how long an attacker keeps a connection: longer than any setup timeout
	fillsFor       = 6 * time.Second // how long attackers connect before honest peers dial
	mostP99        = 100 * time.Millisecond
)

func init() {
	roles["siw"], roles["rsocket"], roles["attack"] = serveSIW, serveRSocket, attack
	roles["dial siw"], roles["dial rsocket"] = dialSIW, dialRSockets
	roles["few descriptors"] = serveWithFew
}

func serveRSocket([]string) error {
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		return err
	}
	lc := rsocket.ListenConfig{Config: rsocket.Config{Device: nic.Device()}}
	ln, err := lc.Listen(context.Background(), "tcp", ":"+serverPort)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// noBuffers is for endpoints that only connect.
var noBuffers = cm.EndpointConfig{Messages: cm.None}

// refuse is the private data of requests that serveSIW rejects.
const refuse = "refuse"

// serveSIW rejects in its loop, which must not block, and accepts in a goroutine per request.
func serveSIW([]string) error {
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	ln, err := cm.Listen(ctx, ":"+serverPort, cm.Config{Device: nic.Device()})
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		req, err := ln.Accept(ctx)
		if err != nil {
			return err
		}
		if strings.HasPrefix(string(req.PrivateData()), refuse) {
			_ = req.Reject([]byte("no"))
			continue
		}
		go func() {
			ep, err := req.AcceptEndpoint(ctx, noBuffers)
			if err != nil {
				return
			}
			<-ep.ID().Done()
			_ = ep.Close()
		}()
	}
}

// attackRequest is a Request for a peer-to-peer connection that every listener accepts: its private
// data is that of rsockets (struct rs_conn_data), with 64 credits, a table of 2 entries and a
// buffer of 4,096 bytes.
func attackRequest() []byte {
	private := make([]byte, 40)
	private[0], private[3] = 1, 64
	for i, length := range []uint16{2, 4096} {
		entry := private[8+16*i:]
		entry[6], entry[11], entry[14], entry[15] = 1, 1, byte(length>>8), byte(length)
	}
	return attackFrame(private)
}

func attackFrame(private []byte) []byte {
	b, err := (&mpa.Frame{Rev: mpa.Rev2, HasEnhanced: true,
		Enhanced: mpa.Enhanced{PeerToPeer: true, RTRWrite: true, IRD: 1, ORD: 1}, PrivateData: private}).Append(nil)
	if err != nil {
		panic(err)
	}
	return b
}

const noFirst = "no first message"

// hostile lists the attackers' connections: what they send, after which they stay.
var hostile = []struct {
	name  string
	local bool // from a loopback address of the server's host
	sends []byte
	leave bool // immediately
}{
	{name: noFirst, sends: attackRequest()},
	{name: "rejected", sends: attackFrame([]byte(refuse))},
	{name: "silent"},
	{name: "silent from loopback", local: true},
	{name: "half", sends: attackRequest()[:19]},
	{name: "malformed", sends: []byte("GET / HTTP/1.1\r\nHost: 10.99.0.1\r\n\r\n")},
	{name: "gone at once", leave: true},
}

// attack makes connections of one kind from an address until its input ends, and prints their rate
// per second.
func attack(args []string) error {
	kind, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	from, to := args[1], args[2]
	const callers = 8
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0)),
		KeepAlive: -1}
	var number, made atomic.Int64
	began := time.Now()
	for range callers {
		go func() {
			for {
				time.Sleep(time.Until(began.Add(time.Duration(number.Add(1)) * time.Second / callsPerSecond)))
				nc, err := dialer.Dial("tcp", to)
				if err != nil {
					continue
				}
				made.Add(1)
				if hostile[kind].leave {
					_ = nc.(*net.TCPConn).SetLinger(int(made.Load()%2) - 1) // half of them reset
					nc.Close()
					continue
				}
				_, _ = nc.Write(hostile[kind].sends)
				time.AfterFunc(stays, func() { nc.Close() })
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Printf("%.0f calls a second\n", float64(made.Load())/time.Since(began).Seconds())
	return nil
}

func dialRSockets(args []string) error {
	return measure(args, func(nic *usiw.NIC, address string) error {
		d := rsocket.Dialer{Config: rsocket.Config{Device: nic.Device()}}
		c, err := d.Dial("tcp", address)
		if err != nil {
			return err
		}
		err = echoes(c, "hello")
		_ = c.(*rsocket.Conn).SetLinger(0)
		return errors.Join(err, c.Close())
	})
}

func dialSIW(args []string) error {
	return measure(args, func(nic *usiw.NIC, address string) error {
		ep, err := cm.Dial(context.Background(), address, cm.Config{Device: nic.Device()}, noBuffers)
		if err != nil {
			return err
		}
		return ep.Close()
	})
}

// measured is the result of an honest program.
type measured struct {
	P50, P99, Max time.Duration
	Failed        []string
}

func (m measured) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v, %d failed", m.P50, m.P99, m.Max, len(m.Failed))
}

// measure has an honest peer dial, repeatedly or many times concurrently, and reports how long it
// took. A dial does not wait for the previous one.
func measure(args []string, dial func(nic *usiw.NIC, address string) error) error {
	from, to := args[0], args[1]
	dials, perSecond := dialsMeasured, dialsPerSecond
	if len(args) > 2 {
		dials, perSecond = burst, math.MaxInt
	}
	nic, err := usiw.New(usiw.Config{Addr: netip.MustParseAddr(from)})
	if err != nil {
		return err
	}
	var m measured
	var mu sync.Mutex // guards m.Failed
	took := make([]time.Duration, dials)
	var all sync.WaitGroup
	began := time.Now()
	for i := range took {
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		all.Go(func() {
			began := time.Now()
			err := dial(nic, to)
			took[i] = time.Since(began)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				m.Failed = append(m.Failed, err.Error())
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100].Round(10 * time.Microsecond) }
	m.P50, m.P99, m.Max = at(50), at(99), at(100)
	return json.NewEncoder(os.Stdout).Encode(m)
}

// command returns a command that runs the test binary as a program on a host.
func command(t *testing.T, host *rdmatest.Namespace, env string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program(t, "nsenter", "util-linux"), append([]string{"--net=" + host.Path, self}, args...)...)
	cmd.Env = append(os.Environ(), env)
	return cmd
}

// honestHosts are the addresses from which honest peers dial: one unrelated to the attackers, one
// over IPv6, and one behind the same NAT.
var honestHosts = []struct{ name, from, server string }{
	{"IPv4", honestHost, serverHost}, {"IPv6", honestHost6, serverHost6},
	{"the attackers' address", attackerHost, serverHost},
}

// TestLongListeners: beside a thousand hostile connections per second, all honest dials from
// another address succeed, 99 of 100 within 100 ms. Almost all dials from the attackers' own
// address succeed, unless the attack occupies setups. A thousand concurrent dials from one address
// succeed too.
func TestLongListeners(t *testing.T) {
	if os.Getenv(longVariable) == "" {
		t.Skip("runs with " + longVariable + "=1")
	}
	server, clients := rdmatest.NewNamespace(t), rdmatest.NewNamespace(t)
	server.IP(t, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
	server.IP(t, "link", "set", "v1", "netns", clients.Path)
	for _, address := range []string{serverHost + "/24", serverHost6 + "/64"} {
		server.IP(t, "addr", "add", address, "dev", "v0", "nodad")
	}
	for _, address := range []string{attackerHost + "/24", honestHost + "/24", honestHost6 + "/64"} {
		clients.IP(t, "addr", "add", address, "dev", "v1", "nodad")
	}
	server.IP(t, "link", "set", "v0", "up")
	server.IP(t, "link", "set", "lo", "up")
	clients.IP(t, "link", "set", "v1", "up")

	target, url := listenAt(t, schemeUnix)
	serveEach(t, target, echo)
	for _, listener := range []struct{ name, dial string }{
		{"siw", "dial siw"}, {"rsocket", "dial rsocket"}, {"bridge", "dial rsocket"},
	} {
		start := func(t *testing.T) {
			cmd := command(t, server, asRole+"="+listener.name)
			if listener.name == "bridge" {
				cmd = command(t, server, asBridge+"=1", "--listen", "rsocket://:"+serverPort, "--dial", url)
			}
			testprogram.Start(t, cmd).Out.Await(t, "listening")
		}
		dial := func(t *testing.T, from, to string, more ...string) (m measured) {
			to = net.JoinHostPort(to, serverPort)
			out, err := command(t, clients, asRole+"="+listener.dial, append([]string{from, to}, more...)...).Output()
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(out, &m))
			return m
		}
		for kind, h := range hostile {
			t.Run(listener.name+"/"+h.name, func(t *testing.T) {
				start(t)
				host, from, to := clients, attackerHost, serverHost
				if h.local {
					host, from, to = server, "127.0.0.1", "127.0.0.1"
				}
				cmd := command(t, host, asRole+"=attack", strconv.Itoa(kind), from, net.JoinHostPort(to, serverPort))
				stop, err := cmd.StdinPipe()
				require.NoError(t, err)
				attacker := testprogram.Start(t, cmd)
				time.Sleep(fillsFor)
				for _, honest := range honestHosts {
					m := dial(t, honest.from, honest.server)
					t.Logf("%s: %v; load %s", honest.name, m, load())
					if honest.from == attackerHost {
						if h.name != noFirst { // these setups use up all that an address may have
							assert.Less(t, len(m.Failed), dialsMeasured/10, honest.name)
						}
						continue
					}
					assert.Empty(t, m.Failed, honest.name)
					assert.Less(t, m.P99, mostP99, honest.name)
				}
				require.NoError(t, stop.Close())
				attacker.Ends(t, 0)
				t.Logf("%s", attacker.Out.String())
			})
		}
		t.Run(listener.name+"/at once", func(t *testing.T) {
			start(t)
			m := dial(t, honestHost, serverHost, "at once")
			t.Logf("%v; load %s", m, load())
			require.Empty(t, m.Failed)
		})
	}
}

// load returns the system's load average.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return strings.Fields(string(text))[0]
}

// fewDescriptors is how many descriptors serveWithFew may have.
const fewDescriptors = 300

// serveWithFew accepts connections until there are no descriptors for more, then again.
func serveWithFew(args []string) error {
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: fewDescriptors, Max: fewDescriptors}); err != nil {
		return err
	}
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		return err
	}
	if args[0] == "siw" {
		ln, err := cm.Listen(context.Background(), "127.0.0.1:0", cm.Config{Device: nic.Device()})
		if err != nil {
			return err
		}
		fmt.Println("listening on", ln.Addr())
		for {
			req, err := ln.Accept(context.Background())
			if err != nil {
				fmt.Println(err)
				continue
			}
			go func() {
				ep, err := req.AcceptEndpoint(context.Background(), noBuffers)
				if err != nil {
					return
				}
				<-ep.ID().Done()
				_ = ep.Close()
			}()
		}
	}
	lc := rsocket.ListenConfig{Config: rsocket.Config{Device: nic.Device()}}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			fmt.Println(err)
			continue
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// TestFewDescriptors: at the descriptor limit dials fail, and Accept reports why. Afterwards it
// continues.
func TestFewDescriptors(t *testing.T) {
	for _, kind := range []string{"siw", "rsocket"} {
		t.Run(kind, func(t *testing.T) {
			self, err := os.Executable()
			require.NoError(t, err)
			cmd := exec.Command(self, kind)
			cmd.Env = append(os.Environ(), asRole+"=few descriptors")
			p := testprogram.Start(t, cmd)
			address := p.Out.AwaitMatch(t, `listening on (\S+)\n`)[1]
			nic, err := usiw.New(usiw.Config{SetupTimeout: 2 * time.Second})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, nic.Close()) })
			dial := func() (io.Closer, error) {
				if kind == "siw" {
					return cm.Dial(t.Context(), address, cm.Config{Device: nic.Device()}, noBuffers)
				}
				d := rsocket.Dialer{Config: rsocket.Config{Device: nic.Device()}}
				return d.Dial("tcp", address)
			}
			var open []io.Closer
			for err == nil {
				var c io.Closer
				if c, err = dial(); err == nil {
					open = append(open, c)
				}
				require.Less(t, len(open), fewDescriptors)
			}
			p.Out.Await(t, "too many open files")
			for _, c := range open {
				_ = c.Close()
			}
			require.Eventually(t, func() bool {
				c, err := dial()
				if err != nil {
					return false
				}
				return c.Close() == nil
			}, limit, 10*time.Millisecond)
		})
	}
}

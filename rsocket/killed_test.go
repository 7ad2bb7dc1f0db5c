// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// asClient is the variable that makes this program the client of TestClientsKilled; its value is
// the address to connect to.
const asClient = "GOVERBS_RSOCKET_CLIENT"

// clientConns is the number of connections per client: 100, but fewer with the race detector, which
// would need half a minute.
var clientConns = int64(map[bool]int{false: 100, true: 10}[race.Enabled])

// client opens its connections, sends and receives on each until its standard input ends, and
// closes them. It runs in a separate process: any failure exits.
func client(at string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	nic, err := usiw.New(usiw.Config{})
	must(err)
	d := rsocket.Dialer{Config: rsocket.Config{Device: nic.Device()}, Timeout: 30 * time.Second}
	var conns []*rsocket.Conn
	for range clientConns {
		nc, err := d.Dial("tcp", at)
		must(err)
		c := nc.(*rsocket.Conn)
		must(c.SetLinger(30))
		conns = append(conns, c)
	}
	var stop atomic.Bool
	var g errgroup.Group
	for _, c := range conns {
		g.Go(func() error {
			p := make([]byte, 1000)
			for !stop.Load() {
				if _, err := c.Write(p); err != nil {
					return err
				}
				if _, err := io.ReadFull(c, p); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond)
			}
			return c.Close()
		})
	}
	fmt.Println("connected")
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	must(g.Wait())
	must(nic.Close())
}

// TestClientsKilled: of two processes with 100 connections each, one is killed (SIGKILL) while all
// are busy. Its connections fail here; the others continue and close in an orderly way.
func TestClientsKilled(t *testing.T) {
	ln := listen(t, rsocket.Config{Device: usiwDevice(t, usiw.Config{}), KeepAlive: 100 * time.Millisecond},
		"127.0.0.1:0")
	var eof, reset, answers atomic.Int64
	served := make(chan error, 1)
	go func() {
		var g errgroup.Group
		defer func() { served <- g.Wait() }()
		for range 2 * clientConns {
			c, err := ln.Accept()
			if err != nil {
				g.Go(func() error { return err })
				return
			}
			g.Go(func() error {
				p := make([]byte, 1000)
				for {
					_, err := io.ReadFull(c, p)
					if err == nil {
						_, err = c.Write(p)
					}
					switch {
					case err == nil:
						answers.Add(1)
						continue
					case errors.Is(err, io.EOF):
						eof.Add(1)
					case errors.Is(err, syscall.ECONNRESET):
						reset.Add(1)
					default:
						return err
					}
					return c.Close()
				}
			})
		}
	}()
	start := func() (*testprogram.Program, io.Closer) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asClient+"="+ln.Addr().String())
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		return testprogram.Start(t, cmd), in
	}
	killed, _ := start()
	lives, end := start()
	killed.Out.Await(t, "connected")
	lives.Out.Await(t, "connected")
	require.NoError(t, killed.Kill())
	waitFor(t, func() bool { return reset.Load() == clientConns })
	before := answers.Load()
	waitFor(t, func() bool { return answers.Load() >= before+10*clientConns })
	require.Zero(t, eof.Load())
	require.NoError(t, end.Close())
	lives.Ends(t, 0)
	waitFor(t, func() bool { return eof.Load() == clientConns })
	require.NoError(t, <-served)
	require.Equal(t, clientConns, reset.Load())
}

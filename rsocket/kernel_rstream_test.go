// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
)

// rstreamSync is how many bytes rstream exchanges first.
const rstreamSync = 16

// streamer speaks as rstream(1) does with -T v: the bytes of each direction count up from 0 to 255, again and again.
type streamer struct {
	c       net.Conn
	out, in byte
	size    int
	count   int
}

func (s *streamer) send(n int) error {
	p := make([]byte, n)
	for i := range p {
		p[i] = s.out
		s.out++
	}
	_, err := s.c.Write(p)
	return err
}

func (s *streamer) recv(n int) error {
	p := make([]byte, n)
	if _, err := io.ReadFull(s.c, p); err != nil {
		return err
	}
	for i, b := range p {
		if b != s.in {
			return fmt.Errorf("byte %d of %d is %#x, not %#x", i, n, b, s.in)
		}
		s.in++
	}
	return nil
}

// run is one run, in which the client sends first.
func (s *streamer) run(client bool) error {
	first, second := s.recv, s.send
	if client {
		first, second = s.send, s.recv
	}
	err := errors.Join(first(rstreamSync), second(rstreamSync))
	for range s.count {
		err = errors.Join(err, first(s.size))
	}
	for range s.count {
		err = errors.Join(err, second(s.size))
	}
	return err
}

// TestKernelRstream: rstream of librdmacm as client and as server, which verifies every byte.
func TestKernelRstream(t *testing.T) {
	eachKernelDevice(t, func(t *testing.T, cfg rsocket.Config, ip, _ string) {
		tiny := cfg
		tiny.RecvBuffer, tiny.SendBuffer, tiny.RecvQueue, tiny.SendQueue = 4096, 4096, 16, 16
		for _, c := range []struct {
			name        string
			cfg         rsocket.Config
			size, count int
		}{
			{"64 bytes", cfg, 64, 500},
			{"300000 bytes", cfg, 300_000, 4},
			{"tiny", tiny, 5000, 20},
		} {
			rstream := func(port string, options ...string) (*exec.Cmd, context.CancelFunc) {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				return exec.CommandContext(ctx, "rstream", append(options, "-p", port, "-S", strconv.Itoa(c.size), "-C", strconv.Itoa(c.count),
					"-I", "1", "-T", "v")...), cancel
			}
			t.Run(c.name+"/C connects", func(t *testing.T) {
				ln := listen(t, c.cfg, net.JoinHostPort(ip, "0"))
				_, port, _ := net.SplitHostPort(ln.Addr().String())
				ran := make(chan error, 1)
				go func() {
					cmd, cancel := rstream(port, "-s", ip)
					defer cancel()
					out, err := cmd.CombinedOutput()
					if err != nil {
						err = fmt.Errorf("%w: %s", err, out)
					}
					ran <- err
				}()
				require.NoError(t, ln.SetDeadline(time.Now().Add(30*time.Second)))
				conn, err := ln.AcceptConn()
				require.NoError(t, err)
				require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
				require.NoError(t, (&streamer{c: conn, size: c.size, count: c.count}).run(false))
				_, err = conn.Read(make([]byte, 1))
				require.Equal(t, io.EOF, err)
				require.NoError(t, conn.Close())
				require.NoError(t, <-ran)
			})
			t.Run(c.name+"/C listens", func(t *testing.T) {
				const port = "7499"
				cmd, cancel := rstream(port, "-b", ip)
				defer cancel()
				ran := make(chan error, 1)
				go func() {
					out, err := cmd.CombinedOutput()
					if err != nil {
						err = fmt.Errorf("%w: %s", err, out)
					}
					ran <- err
				}()
				d := rsocket.Dialer{Config: c.cfg, Timeout: 10 * time.Second}
				var conn net.Conn
				waitFor(t, func() (ok bool) {
					var err error
					conn, err = d.Dial("tcp", net.JoinHostPort(ip, port))
					return err == nil
				})
				require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
				require.NoError(t, (&streamer{c: conn, size: c.size, count: c.count}).run(true))
				require.NoError(t, conn.Close())
				require.NoError(t, <-ran)
			})
		}
	})
}

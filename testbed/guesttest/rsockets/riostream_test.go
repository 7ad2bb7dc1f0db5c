// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package rsockets

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// riostream runs one side of riostream(1): each side maps a buffer that the other writes into. The
// last write of a turn has bytes that count up from 0 modulo 256, followed by the number of the
// turn.
type riostream struct {
	rstream
	c        *rsocket.Conn
	m        *rsocket.Mapping
	out, in  byte
	turn     byte
	transfer []byte
}

// args returns the command line without addresses.
func (r *riostream) args() []string {
	return []string{"-S", strconv.Itoa(r.size), "-C", strconv.Itoa(r.count), "-I", strconv.Itoa(r.iterations), "-T",
		"v"}
}

// send writes a turn.
func (r *riostream) send() error {
	for i := range r.count {
		if i == r.count-1 {
			for j := range r.size - 1 {
				r.transfer[j] = r.out
				r.out++
			}
			r.transfer[r.size-1] = r.turn
			r.turn++
		}
		if _, err := r.c.WriteAt(r.transfer, 0); err != nil {
			return err
		}
	}
	return nil
}

// receive waits for the end of the peer's turn, which is visible only in memory. The size is a
// multiple of 8.
func (r *riostream) receive() error {
	end, err := r.m.MR().Word(r.size - 8)
	if err != nil {
		return err
	}
	for begun := time.Now(); byte(end.Load()>>56) != r.turn; { // the guest is little-endian
		if time.Since(begun) > limit {
			return fmt.Errorf("turn %d of the peer has not ended", r.turn)
		}
		time.Sleep(100 * time.Microsecond)
	}
	r.turn++
	for i, b := range r.m.MR().Bytes()[:r.size-1] {
		if b != r.in {
			return fmt.Errorf("byte %d of a turn is %d, not %d", i, b, r.in)
		}
		r.in++
	}
	return nil
}

// run runs all turns, after each side has announced its mapping to the other.
func (r *riostream) run(client bool, connected func()) error {
	m, err := r.c.Map(r.size, 0)
	if err != nil {
		return err
	}
	r.m, r.transfer = m, make([]byte, r.size)
	m.MR().Bytes()[r.size-1], r.transfer[r.size-1] = 255, 255 // no turn
	sync := make([]byte, syncSize)
	first, second := r.receive, r.send
	if client {
		if _, err := r.c.Write(sync); err != nil {
			return err
		}
		first, second = r.send, r.receive
	}
	if _, err := io.ReadFull(r.c, sync); err != nil {
		return err
	}
	connected()
	if !client {
		if _, err := r.c.Write(sync); err != nil {
			return err
		}
	}
	for range r.iterations {
		if err := first(); err != nil {
			return err
		}
		if err := second(); err != nil {
			return err
		}
	}
	return nil
}

// TestRiostream: package rsocket is client and server of riostream; both sides verify what they
// receive.
func TestRiostream(t *testing.T) {
	everywhere(t, func(t *testing.T, p place, dev *verbs.Device) {
		cfg := rsocket.Config{Device: dev, Mappings: 1}
		for _, turns := range []rstream{{64, 100, 2, false}, {300_000, 5, 2, false}} {
			t.Run(fmt.Sprintf("%d bytes/C serves", turns.size), func(t *testing.T) {
				r := &riostream{rstream: turns}
				port := freePort(t, p.peer)
				server := start(t, "riostream", append(r.args(), "-b", p.peer, "-p", port)...)
				r.c = p.dial(t, cfg, port)
				require.NoError(t, r.run(true, func() { p.carries(t, "riostream", 1) }))
				require.NoError(t, r.c.Close())
				server.Ends(t, 0)
			})
			t.Run(fmt.Sprintf("%d bytes/Go serves", turns.size), func(t *testing.T) {
				r := &riostream{rstream: turns}
				ln := p.listen(t, cfg)
				_, port, err := net.SplitHostPort(ln.Addr().String())
				require.NoError(t, err)
				client := start(t, "riostream", append(r.args(), "-s", p.host, "-p", port)...)
				r.c = accept(t, ln)
				require.NoError(t, r.run(false, func() { p.carries(t, "riostream", 1) }))
				client.Ends(t, 0)
			})
		}
	})
}

// TestRiomap: a C program maps memory a thousand times. Between two C programs that stops after 288
// times, because the receiver does not return the credits that mappings consume.
func TestRiomap(t *testing.T) {
	const times = 1000
	bothRoles(t, func(t *testing.T, p place, dev *verbs.Device, cServes bool) {
		peer, c := p.meet(t, rsocket.Config{Device: dev, Mappings: 1}, cServes, "map", strconv.Itoa(times))
		for i := range times {
			receives(t, c, i, 1)
			_, err := c.WriteAt([]byte{byte(i)}, int64(i%64))
			require.NoError(t, err)
			sends(t, c, i, 1, 1)
		}
		peer.Ends(t, 0)
	})
}

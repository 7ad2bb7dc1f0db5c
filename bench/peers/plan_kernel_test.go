// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKernelDevices(t *testing.T) {
	o, err := parse([]string{"-kernel", "rxe0@10.78.0.1,siw0@10.77.0.1"})
	require.NoError(t, err)
	require.Equal(t, []kernelDevice{{"rxe0", "10.78.0.1"}, {"siw0", "10.77.0.1"}}, o.kernel)
	for _, list := range []string{"rxe0", "rxe0@", "@10.78.0.1", "rxe0@host", "rxe0@::1", "rxe0@10.78.0.1,"} {
		_, err := parse([]string{"-kernel", list})
		require.ErrorContains(t, err, "want DEVICE@ADDRESS", list)
	}
	_, err = parse([]string{"-kernel", "rxe0@10.78.0.1", "-busy"})
	require.ErrorContains(t, err, "-busy")
}

// TestKernelPlan: each row compares the two programs on one device with the same messages.
func TestKernelPlan(t *testing.T) {
	p := kernelPlan(&tools{self: "peers", seconds: time.Second},
		[]kernelDevice{{"rxe0", "10.78.0.1"}, {"siw0", "10.77.0.1"}})
	require.Len(t, p.subjects, 18)
	require.Len(t, p.rows, 12)
	for _, w := range p.rows {
		require.Equal(t, w.over.unit, w.under.unit, w.what)
		require.Equal(t, w.over.unit == unitTime, w.less, w.what)
		require.True(t, strings.HasPrefix(w.under.name, strings.TrimSuffix(w.over.name, ", rsocket")), "%s / %s",
			w.over.name, w.under.name)
	}
}

// TestHung: a run that hangs is killed at its limit, retried and counted; other failures are not
// retried.
func TestHung(t *testing.T) {
	sleeper := pair{listen: []string{"sh", "-c", "echo listening 127.0.0.1:1; exec sleep 60"},
		connect: []string{"sleep", "60"}, announces: true, limit: 200 * time.Millisecond}
	_, _, err := sleeper.run()
	require.ErrorIs(t, err, errHung)
	wrong := sleeper
	wrong.connect = []string{"false"}
	_, _, err = wrong.run()
	require.Error(t, err)
	require.NotErrorIs(t, err, errHung)

	hung, other := fmt.Errorf("%w for 1s", errHung), errors.New("no device")
	for _, c := range []struct {
		errs []error // of the runs
		hung int
		err  error
	}{
		{[]error{nil}, 0, nil},
		{[]error{hung, hung, nil}, 2, nil},
		{[]error{hung, hung, hung, hung, nil}, rstreamTries, errHung},
		{[]error{other, nil}, 0, other},
	} {
		s, tries := &subject{name: "siw0, rstream"}, 0
		f, _, err := s.again(func() (figure, time.Duration, error) {
			tries++
			return 7, 0, c.errs[tries-1]
		})
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.hung, s.hung)
		if c.err == nil {
			require.Equal(t, 7.0, f)
		}
	}
	require.Empty(t, hangs([]*subject{{name: "a"}}))
	require.Equal(t, " Runs that hung, and were tried again: b 2; c 1.",
		hangs([]*subject{{name: "a"}, {name: "b", hung: 2}, {name: "c", hung: 1}}))
}

// TestTurnsFigure: for a ping-pong the figure is the time per message; for a stream it is converted
// to a rate.
func TestTurnsFigure(t *testing.T) {
	f, err := fabricFigure("name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n" +
		"custom    64k     100     2       25m         0.51s      0.41      16.00\n")
	require.NoError(t, err)
	require.Equal(t, 16.0, f)
	stream, back := job{work: workTurns, size: 1 << 20, count: 10}, job{work: workTurns, size: 64, count: 1}
	require.Equal(t, 65536.0, stream.ofTurns(f))
	require.Equal(t, 16.0, back.ofTurns(f))
}

func TestIDListens(t *testing.T) {
	const list = "link rxe0/- cm-idn 1 state IDLE ps TCP pid 9 comm x\n" +
		"link rxe0/1 cm-idn 3 state LISTEN ps TCP pid 10 comm rstream src-addr 10.78.0.1:7500 dst-addr 0.0.0.0:0\n" +
		"link rxe0/1 lqpn 17 qp-type RC state CONNECT ps TCP pid 11 comm peers src-addr 10.78.0.1:7501 dst-addr 10.78.0.1:7500\n"
	require.True(t, idListens(list, "10.78.0.1:7500"))
	require.False(t, idListens(list, "10.78.0.1:7501"), "it is connected")
	require.False(t, idListens(list, "10.78.0.1:750"))
	require.False(t, idListens("", "10.78.0.1:7500"))
}

// TestTakeTurns: both ends of a job of turns, on the user-space RNIC instead of a kernel device.
func TestTakeTurns(t *testing.T) {
	for _, j := range []job{{size: 64, count: 1, turns: 20}, {size: 100_000, count: 7, turns: 3}} {
		j.over, j.work, j.mode, j.host, j.conns, j.depth, j.seconds = "rsocket", workTurns, modeGo, "127.0.0.1", 1, 1,
			time.Second
		j.program, j.pause = programComputes, time.Millisecond
		require.NoError(t, j.check())
		addr, served := make(chan string, 1), make(chan error, 1)
		go func() { served <- listenRsocket(&j, func(a string) { addr <- a }) }()
		var at string
		select {
		case at = <-addr:
		case err := <-served:
			require.FailNow(t, "no listener", "%v", err)
		}
		var out bytes.Buffer
		require.NoError(t, end(append(j.args(), at), &out))
		require.NoError(t, <-served)
		require.Regexp(t, `^\d+\.\d{3}\n$`, out.String())
	}
	for _, wrong := range []job{{count: 0, turns: 1}, {count: 1, turns: 0}, {count: 1, turns: 1, over: "tcp"}} {
		j := wrong
		j.work, j.mode, j.size, j.conns, j.depth, j.seconds = workTurns, modeGo, 64, 1, 1, time.Second
		j.program, j.pause = programComputes, time.Millisecond
		if j.over == "" {
			j.over = "rsocket"
		}
		require.Error(t, j.check())
	}
}

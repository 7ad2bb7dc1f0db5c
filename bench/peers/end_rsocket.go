// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// listenRsocket and connectRsocket do over package rsocket, with the defaults of its Config, what
// listenTCP and connectTCP do over TCP.

func listenRsocket(j *job, announce func(addr string)) error {
	dev, end, err := rsocketDevice(j)
	if err != nil {
		return err
	}
	lc := rsocket.ListenConfig{Config: rsocket.Config{Device: dev}}
	ln, err := lc.Listen(context.Background(), "tcp", net.JoinHostPort(j.host, "0"))
	if err != nil {
		return errors.Join(err, end())
	}
	return errors.Join(serve(ln, j, announce), end())
}

func connectRsocket(j *job, addr string) (f figures, err error) {
	dev, end, err := rsocketDevice(j)
	if err != nil {
		return f, err
	}
	d := rsocket.Dialer{Config: rsocket.Config{Device: dev}}
	f, err = drive(j, func() (net.Conn, error) { return d.Dial("tcp", addr) })
	return f, errors.Join(err, end())
}

// rsocketDevice returns the device of a job and a function that closes it.
func rsocketDevice(j *job) (dev *verbs.Device, end func() error, err error) {
	if j.device != "" {
		dev, err = verbs.DeviceByName(j.device)
		return dev, func() error { return nil }, err
	}
	nic, err := newNIC(j)
	if err != nil {
		return nil, nil, err
	}
	return nic.Device(), nic.Close, nil
}

// takeTurns does what rstream does, and returns the time per message in microseconds. Each side
// first sends one message; the turns that follow are measured.
func (t *streamConn) takeTurns(j *job, client bool) (figure, error) {
	first, second := t.receive, t.send
	if client {
		first, second = t.send, t.receive
	}
	turn := func(count int) error {
		if err := first(j.size, count); err != nil {
			return err
		}
		return second(j.size, count)
	}
	if err := turn(1); err != nil {
		return 0, err
	}
	start := time.Now()
	for range j.turns {
		if err := turn(j.count); err != nil {
			return 0, err
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1e3 / float64(2*j.turns*j.count), nil
}

func (t *streamConn) send(size, count int) error {
	for range count {
		if _, err := t.Write(t.next(size)); err != nil {
			return err
		}
	}
	return nil
}

func (t *streamConn) receive(size, count int) error {
	for range count {
		if _, err := io.ReadFull(t, t.next(size)); err != nil {
			return err
		}
	}
	return nil
}

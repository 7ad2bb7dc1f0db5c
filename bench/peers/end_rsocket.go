// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"net"

	"github.com/goverbs/goverbs/rsocket"
)

// listenRsocket and connectRsocket do over package rsocket, with the defaults of its Config, what listenTCP and connectTCP do over TCP.

func listenRsocket(j *job, announce func(addr string)) error {
	nic, err := newNIC(j)
	if err != nil {
		return err
	}
	lc := rsocket.ListenConfig{Config: rsocket.Config{Device: nic.Device()}}
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, nic.Close())
	}
	return errors.Join(serve(ln, j, announce), nic.Close())
}

func connectRsocket(j *job, addr string) (f figures, err error) {
	nic, err := newNIC(j)
	if err != nil {
		return f, err
	}
	d := rsocket.Dialer{Config: rsocket.Config{Device: nic.Device()}}
	f, err = drive(j, func() (net.Conn, error) { return d.Dial("tcp", addr) })
	return f, errors.Join(err, nic.Close())
}

// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// Before they connect, the two sides of dtestx exchange their addresses over TCP: the server
// listens, and each side sends a text of this length with LID, QP number, scope and IPv4 address in
// hexadecimal, and the name of its provider.
const (
	paramsPort = 15828
	paramsLen  = 128
)

// provider is the name of dtestx's provider. dtestx adopts the name that it receives.
const provider = "rxe"

// params returns the text. The address is a number whose bytes in memory are those of the address.
func params(address netip.Addr) []byte {
	b := make([]byte, paramsLen)
	ip := address.As4()
	copy(b, fmt.Sprintf("%04x:%08x:%08x:%08x:%s", 0, 0, 0, binary.NativeEndian.Uint32(ip[:]), provider))
	return b
}

// tellClient waits for the client and sends it this side's address.
func tellClient(ctx context.Context, ln net.Listener, address netip.Addr) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	return swap(ctx, conn, address)
}

// tellServer sends the server this side's address. It waits until the server is listening.
func tellServer(ctx context.Context, server, address netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	to := net.JoinHostPort(server.String(), strconv.Itoa(paramsPort))
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", to)
		if err == nil {
			return swap(ctx, conn, address)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func swap(ctx context.Context, conn net.Conn, address netip.Addr) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := conn.Write(params(address)); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, paramsLen)) // the address is taken from the command line instead
	return err
}

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

// Before they connect, the two sides of dtestx tell each other over TCP where they are: the server
// listens, and each sends a text of this length with LID, QP number, scope and IPv4 address in
// hexadecimal, and the name of its provider.
const (
	paramsPort = 15828
	paramsLen  = 128
)

// provider is the name of the provider that dtestx uses, of which it takes over the name that it is
// sent.
const provider = "rxe"

// params is the text. The address is a number whose bytes in memory are those of the address.
func params(address netip.Addr) []byte {
	b := make([]byte, paramsLen)
	ip := address.As4()
	copy(b, fmt.Sprintf("%04x:%08x:%08x:%08x:%s", 0, 0, 0, binary.NativeEndian.Uint32(ip[:]), provider))
	return b
}

// tellClient waits for the client, and tells it the address of this side.
func tellClient(ctx context.Context, ln net.Listener, address netip.Addr) error {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	return swap(ctx, conn, address)
}

// tellServer tells the server the address of this side. It waits until the server listens.
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
	_, err := io.ReadFull(conn, make([]byte, paramsLen)) // the connection is made to the address of the command line
	return err
}

// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/verbs"
)

// place is the address of a QP that the two programs exchange.
type place struct {
	lid      uint16
	qpn, psn uint32
	gid      verbs.GID
}

func newPlace(lid uint16, qpn uint32, gid verbs.GID) place {
	return place{lid, qpn, rand.Uint32N(1 << 24), gid}
}

// String formats the place as ibv_rc_pingpong prints it.
func (p place) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", p.lid, p.qpn, p.psn, netip.AddrFrom16(p.gid))
}

// Over TCP it is sent as ibv_rc_pingpong's text, with a terminating zero byte.
const (
	placeFormat = "%04x:%06x:%06x:%s\x00"
	placeLen    = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1
)

func (p place) text() string {
	return fmt.Sprintf(placeFormat, p.lid, p.qpn, p.psn, hex.EncodeToString(p.gid[:]))
}

func parsePlace(b []byte) (p place, err error) {
	var gid string
	if _, err = fmt.Sscanf(string(b[:placeLen-1]), "%04x:%06x:%06x:%32s", &p.lid, &p.qpn, &p.psn, &gid); err == nil {
		_, err = hex.Decode(p.gid[:], []byte(gid))
	}
	if err != nil || len(gid) != 32 || b[placeLen-1] != 0 {
		return p, fmt.Errorf("%q is no address of a QP: %w", b, verbs.ErrInvalid)
	}
	return p, nil
}

// dial opens the TCP connection over which places are exchanged.
func dial(ctx context.Context, o options) (net.Conn, error) {
	at := net.JoinHostPort(o.host, strconv.Itoa(o.port))
	if o.host != "" {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", at)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	return ln.Accept()
}

// receive receives the peer's place.
func receive(c io.Reader) (place, error) {
	var b [placeLen]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return place{}, fmt.Errorf("the address of the peer: %w", err)
	}
	return parsePlace(b[:])
}

// done is what the client sends once it has the server's place.
const done = "done\x00"

// answer sends the server's place and waits until the client confirms it.
func answer(c io.ReadWriter, local place) error {
	if _, err := io.WriteString(c, local.text()); err != nil {
		return err
	}
	var b [len(done)]byte
	if _, err := io.ReadFull(c, b[:]); err != nil {
		return fmt.Errorf("the peer's word that it is ready: %w", err)
	}
	return nil
}

// ask sends the client's place and returns the server's.
func ask(c io.ReadWriter, local place) (place, error) {
	if _, err := io.WriteString(c, local.text()); err != nil {
		return place{}, err
	}
	remote, err := receive(c)
	if err != nil {
		return place{}, err
	}
	_, err = io.WriteString(c, done)
	return remote, err
}

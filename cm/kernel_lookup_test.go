// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// hosts makes names resolve to these addresses, in order, until the test ends.
func hosts(t *testing.T, names map[string][]string) {
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go answerDNS(server, names)
		return client, nil
	}}
}

// answerDNS answers queries on a stream (RFC 1035 section 4).
func answerDNS(conn net.Conn, names map[string][]string) {
	defer conn.Close()
	for {
		size := make([]byte, 2)
		if _, err := io.ReadFull(conn, size); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		var labels []string
		end := 12
		for n := int(query[end]); n > 0; n = int(query[end]) {
			labels = append(labels, string(query[end+1:end+1+n]))
			end += 1 + n
		}
		kind := binary.BigEndian.Uint16(query[end+1:])
		reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end+5]...)
		addresses, known := names[strings.Join(labels, ".")]
		if !known {
			reply[3] |= 3 // no such name
		}
		for _, a := range addresses {
			ip := netip.MustParseAddr(a)
			if ip.Is4() != (kind == 1) {
				continue
			}
			reply[7]++
			reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(ip.BitLen()/8))
			reply = append(reply, ip.AsSlice()...)
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// TestResolveHost: the IPv4 addresses of a host are tried first, in their order, until one has a
// route. If there is a source, only addresses of its family are tried. If none has a route, the
// error is that of the first address.
func TestResolveHost(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	hosts(t, map[string][]string{
		"both.example":  {"2001:db8::1", "192.0.2.1"},
		"later.example": {elsewhere, "192.0.2.1"},
		"none.example":  {elsewhere, "203.0.113.2"},
	})
	resolve := func(ctx context.Context, host, source string) (string, error) {
		cfg := cm.Config{Context: b.vctx}
		if source != "" {
			cfg.Source = netip.AddrPortFrom(netip.MustParseAddr(source), 0)
		}
		id, err := cm.Resolve(ctx, host+".:7306", cfg)
		if err != nil {
			return "", err
		}
		defer func() { require.NoError(t, id.Close()) }()
		return id.RemoteAddr().String(), nil
	}
	for _, c := range []struct{ host, source, want string }{
		{"both.example", "", "192.0.2.1:7306"},
		{"both.example", "192.0.2.1", "192.0.2.1:7306"},
		{"both.example", "2001:db8::1", "[2001:db8::1]:7306"},
		{"later.example", "", "192.0.2.1:7306"},
	} {
		got, err := resolve(soon(t), c.host, c.source)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := resolve(soon(t), "later.example", "2001:db8::1")
	require.ErrorContains(t, err, "later.example. has no address of the family of 2001:db8::1")
	_, err = resolve(soon(t), "unknown.example", "")
	var dns *net.DNSError
	require.ErrorAs(t, err, &dns)
	require.True(t, dns.IsNotFound)

	fakeverbs.Fail("rdma_create_id", 1, syscall.ENOMEM)
	_, err = resolve(soon(t), "none.example", "")
	require.ErrorIs(t, err, syscall.ENOMEM)
	require.NotErrorIs(t, err, syscall.ENETUNREACH)

	before := fakeverbs.Calls("rdma_resolve_addr")
	fakeverbs.CMNext("rdma_resolve_addr", silence)
	_, err = resolve(b.expiresWhenCalled("rdma_resolve_addr"), "none.example", "")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, before+1, fakeverbs.Calls("rdma_resolve_addr"), "there is no time for the other one")
}

// TestListenHost: a listener uses the first address of its host that a device has and that is free.
// If the port is in use, it uses none.
func TestListenHost(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	hosts(t, map[string][]string{
		"both.example":  {"2001:db8::1", "192.0.2.1"},
		"later.example": {elsewhere, "192.0.2.1"},
		"none.example":  {elsewhere, "203.0.113.2"},
	})
	listen := func(ctx context.Context, host, port string) (string, error) {
		ln, err := cm.Listen(ctx, net.JoinHostPort(host, port), cm.Config{Context: b.vctx})
		if err != nil {
			return "", err
		}
		defer func() { require.NoError(t, ln.Close()) }()
		return ln.Addr().String(), nil
	}
	for _, host := range []string{"both.example.", "later.example."} {
		at, err := listen(soon(t), host, "7306")
		require.NoError(t, err)
		require.Equal(t, "192.0.2.1:7306", at)
	}
	_, err := listen(soon(t), "unknown.example.", "7306")
	var dns *net.DNSError
	require.ErrorAs(t, err, &dns)
	fakeverbs.Fail("rdma_create_id", 1, syscall.ENOMEM)
	_, err = listen(soon(t), "none.example.", "7306")
	require.ErrorIs(t, err, syscall.ENOMEM, "the first one's")
	fakeverbs.Fail("rdma_bind_addr", 1, syscall.EADDRINUSE)
	_, err = listen(soon(t), "both.example.", "7306")
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	// If the context is done during the first call, no other address or port is tried.
	t.Cleanup(fakeverbs.Release)
	for _, c := range []struct{ host, port string }{{"later.example.", "7306"}, {"192.0.2.1", "0"}} {
		ctx, cancel := context.WithCancel(t.Context())
		before := fakeverbs.Calls("rdma_bind_addr")
		fakeverbs.Hold("rdma_bind_addr")
		if c.port == "0" {
			fakeverbs.Fail("rdma_bind_addr", 1, syscall.EADDRINUSE)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := listen(ctx, c.host, c.port)
			ended <- err
		}()
		b.until("rdma_bind_addr", fakeverbs.Holding)
		cancel()
		fakeverbs.Release()
		require.Error(t, b.outcome(ended))
		require.Equal(t, before+1, fakeverbs.Calls("rdma_bind_addr"))
	}
}

// TestAddresses: the error for a wrong address names it; a service can be given by name.
func TestAddresses(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	for address, text := range map[string]string{
		"192.0.2.1":               "missing port",
		"192.0.2.1:nosuchservice": "nosuchservice",
		"192.0.2.1:65536":         "port 65536",
		"192.0.2.1:-1":            "port -1",
		"no such host:1":          "no such host",
	} {
		_, err := cm.Resolve(soon(t), address, cm.Config{Context: b.vctx})
		require.ErrorContains(t, err, text)
		_, err = cm.Listen(soon(t), address, cm.Config{Context: b.vctx})
		require.ErrorContains(t, err, text)
	}
	for address, want := range map[string]string{"192.0.2.1:https": "192.0.2.1:443",
		"192.0.2.1:65535": "192.0.2.1:65535"} {
		ln, err := cm.Listen(soon(t), address, cm.Config{Context: b.vctx})
		require.NoError(t, err)
		require.Equal(t, want, ln.Addr().String())
		require.NoError(t, ln.Close())
	}
}

// TestEnds: both sides report the same two addresses, before and after connecting.
func TestEnds(t *testing.T) {
	eachFake(t, func(b *bench) {
		id, qp, other := b.resolve(cm.Config{}), b.qp(0), b.qp(0)
		require.Equal(b, b.ln.Addr(), id.RemoteAddr())
		connected := make(chan error, 1)
		go func() { connected <- id.Connect(soon(b.T), qp, cm.ConnParam{PrivateData: []byte("hello")}) }()
		req, err := b.ln.Accept(soon(b.T))
		require.NoError(b, err)
		local, remote := req.LocalAddr(), req.RemoteAddr()
		require.Equal(b, b.ln.Addr(), local)
		passive, err := req.Accept(soon(b.T), other, cm.ConnParam{})
		require.NoError(b, err)
		require.NoError(b, <-connected)
		require.Equal(b, []net.Addr{local, remote}, []net.Addr{passive.LocalAddr(), passive.RemoteAddr()})
		require.Equal(b, []net.Addr{remote, local}, []net.Addr{id.LocalAddr(), id.RemoteAddr()})
		require.Equal(b, "hello", string(passive.PrivateData()[:5]))
		at := remote.(interface{ AddrPort() netip.AddrPort }).AddrPort()
		require.Equal(b, b.ip, at.Addr().String())
		require.Equal(b, remote.String(), at.String())
		require.Equal(b, "rdma-tcp", remote.Network())
		_, ok := id.Datagram()
		require.False(b, ok, "a connection")
		require.NoError(b, passive.Close())
	})
}

// stale is a context whose deadline has passed, but which is not done yet.
type stale struct{ context.Context }

func (s stale) Deadline() (deadline time.Time, ok bool) { return time.Unix(1, 0), true }

// TestResolveLimits: each request to the kernel has a short timeout, and none is made after the
// deadline of the context.
func TestResolveLimits(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	limits := func() []uint64 {
		addr, route := fakeverbs.Args("rdma_resolve_addr"), fakeverbs.Args("rdma_resolve_route")
		return []uint64{addr[len(addr)-1], route[len(route)-1]}
	}
	resolve := func(ctx context.Context) error {
		id, err := cm.Resolve(ctx, b.ln.Addr().String(), cm.Config{Context: b.vctx})
		if err == nil {
			err = id.Close()
		}
		return err
	}
	require.NoError(t, resolve(t.Context()))
	require.Equal(t, []uint64{250, 10_000}, limits(), "milliseconds")
	long, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, resolve(long))
	require.Equal(t, uint64(250), limits()[0])
	require.InDelta(t, 3_600_000, limits()[1], 30_000)
	require.NoError(t, resolve(stale{t.Context()}))
	require.Equal(t, []uint64{1, 1}, limits())

	late := fakeverbs.CMEvent{Event: int(cm.EventAddrError), Status: -int(syscall.ETIMEDOUT)}
	for range 10_000 {
		fakeverbs.CMNext("rdma_resolve_addr", late)
	}
	require.ErrorIs(t, resolve(stale{t.Context()}), cm.ErrSetupTimeout, "not for ever")
}

// TestNoConnectionManager: without a connection manager in the kernel the error Is ErrNoDevice;
// other errors are returned as they are.
func TestNoConnectionManager(t *testing.T) {
	fakeverbs.Start(t)
	vctx, err := device(t, "fake0").Open()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vctx.Close()) })
	for _, call := range []func() error{
		func() error {
			_, err := cm.Resolve(soon(t), "192.0.2.1:7306", cm.Config{Context: vctx})
			return err
		},
		func() error {
			_, err := cm.Listen(soon(t), "192.0.2.1:0", cm.Config{Context: vctx})
			return err
		},
	} {
		for no, none := range map[syscall.Errno]bool{syscall.ENODEV: true, syscall.ENOENT: true, syscall.ENOSYS: true,
			syscall.EPERM: true, syscall.EACCES: true, syscall.EMFILE: false, syscall.ENOMEM: false} {
			fakeverbs.Fail("rdma_create_event_channel", 1, no)
			err := call()
			require.ErrorIs(t, err, no)
			require.Equal(t, none, errors.Is(err, verbs.ErrNoDevice), err.Error())
		}
		fakeverbs.Fail("rdma_create_id", 1, syscall.ENOMEM)
		require.ErrorIs(t, call(), syscall.ENOMEM)
		require.Zero(t, fakeverbs.Live()["event channel"], "it was opened for nobody else")
	}
	fakeverbs.Fail("rdma_resolve_addr", 1, syscall.EINVAL)
	_, err = cm.Resolve(soon(t), "192.0.2.1:7306", cm.Config{Context: vctx})
	require.ErrorIs(t, err, syscall.EINVAL)
	require.NotErrorIs(t, err, verbs.ErrNoDevice)
	require.NoError(t, vctx.Close())
	_, err = cm.Resolve(soon(t), "192.0.2.1:7306", cm.Config{Context: vctx})
	require.ErrorIs(t, err, verbs.ErrClosed)
	_, err = cm.Listen(soon(t), "192.0.2.1:0", cm.Config{Context: vctx})
	require.ErrorIs(t, err, verbs.ErrClosed)
}

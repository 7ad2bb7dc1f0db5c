// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
	"github.com/goverbs/goverbs/verbs"
)

var (
	here  = tcp("192.0.2.1:40001")
	there = tcp("192.0.2.2:7306")
)

func addrPort(a net.Addr) netip.AddrPort { return netip.MustParseAddrPort(a.String()) }

// TestPackets records a connection as the active side's NIC reports it.
func TestPackets(t *testing.T) {
	s := newScript(t)
	req, rep, fpdus := request(t), reply(t), sends(3)
	s.tap(here, there, true, req)
	s.tap(here, there, false, rep[:mpa.FrameLen]) // as the NIC reads a frame
	s.tap(here, there, false, rep[mpa.FrameLen:])
	s.tap(here, there, true, fpdus[0][:5], fpdus[0][5:], fpdus[1]) // one call with several FPDUs in pieces
	s.tap(here, there, false, fpdus[2])
	packets := readFile(t, s.done(t))
	require.Len(t, packets, 3+5)
	for i, want := range []struct {
		from    net.Addr
		ms      time.Duration
		payload []byte
	}{
		{here, 0, nil}, {there, 0, nil}, {here, 0, nil}, // handshake
		{here, 0, req}, {there, 2, rep}, {here, 3, fpdus[0]}, {here, 3, fpdus[1]}, {there, 4, fpdus[2]},
	} {
		p := packets[i]
		require.Equal(t, addrPort(want.from), p.from, "packet %d", i)
		require.True(t, start.Add(want.ms*time.Millisecond).Equal(p.time), "packet %d at %v", i, p.time)
		require.True(t, bytes.Equal(want.payload, p.tcp.Payload), "packet %d", i)
		require.Equal(t, want.payload != nil, p.tcp.PSH)
		require.Empty(t, p.comments)
	}
	c := follow(t, packets)
	require.Len(t, c, 1)
	require.Equal(t, addrPort(here), c[0][0].from, "the end that sends the Request opens the connection")
}

// TestPassive does the same from the other side: the first bytes are incoming.
func TestPassive(t *testing.T) {
	s := newScript(t)
	req, rep, f := request(t), reply(t), send(1, []byte("hello"))
	s.tap(there, here, false, req[:mpa.FrameLen])
	s.tap(there, here, false, req[mpa.FrameLen:])
	s.tap(there, here, true, rep)
	s.tap(there, here, false, f)
	c := one(t, s.done(t))
	require.Equal(t, addrPort(here), c[0].from)
	require.Equal(t, [][]byte{req, f}, c[0].payloads)
	require.Equal(t, [][]byte{rep}, c[1].payloads)
}

// TestCuts requires identical packets, frame by frame and FPDU by FPDU, however the streams are
// divided into calls and the calls into pieces.
func TestCuts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, markers := range []struct{ first, second bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		// Each end asks the other for markers.
		ends := [2][][]byte{sends(12), sends(9)}
		frames := [2][]byte{frame(t, mpa.Frame{CRC: true, Rev: 1, Markers: markers.second, PrivateData: []byte("p")}),
			frame(t, mpa.Frame{Reply: true, Rev: 1, Markers: markers.first})}
		if markers.first {
			ends[0] = marked(ends[0])
		}
		if markers.second {
			ends[1] = marked(ends[1])
		}
		for _, most := range []int{1, 2, 3, 7, 64, 1000, 4000, 1 << 20} {
			t.Run(fmt.Sprintf("%v/%d", markers, most), func(t *testing.T) {
				s := newScript(t)
				var streams [2][]byte
				for i := range streams {
					streams[i] = bytes.Join(ends[i], nil)
				}
				run := func(i int, b []byte) {
					cut := rng.IntN(len(b) + 1)
					s.tap(here, there, i == 0, b[:cut], nil, b[cut:])
				}
				for i, f := range frames {
					for b := f; len(b) > 0; {
						n := min(most, len(b))
						run(i, b[:n])
						b = b[n:]
					}
				}
				for len(streams[0])+len(streams[1]) > 0 {
					i := rng.IntN(2)
					if n := min(1+rng.IntN(most), len(streams[i])); n > 0 {
						run(i, streams[i][:n])
						streams[i] = streams[i][n:]
					}
				}
				c := one(t, s.done(t))
				for i := range ends {
					require.Equal(t, append([][]byte{frames[i]}, ends[i]...), c[i].payloads)
				}
			})
		}
	}
}

// TestLargeFPDU: an FPDU that does not fit into an IP packet is split in two; one that fits is not
// split.
func TestLargeFPDU(t *testing.T) {
	const most = 65535 - 40
	for _, c := range []struct {
		name    string
		fpdu    []byte
		markers bool
		sizes   []int
	}{
		{"largest that fits", fpdu(make([]byte, most-3-6)), false, []int{most - 3}},
		{"one more", fpdu(make([]byte, most-3-6+1)), false, []int{most, 1}},
		{"largest of all", fpdu(make([]byte, mpa.MaxULPDU)), false, []int{most, mpa.FPDULen(mpa.MaxULPDU) - most}},
		{"largest with markers", fpdu(make([]byte, mpa.MaxMULPDU)), true,
			[]int{mpa.MarkedLen(0, mpa.FPDULen(mpa.MaxMULPDU))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			f := c.fpdu
			if c.markers {
				f = marked([][]byte{f})[0]
			}
			s.tap(here, there, true, request(t))
			s.tap(here, there, false, frame(t, mpa.Frame{Reply: true, Rev: 1, Markers: c.markers}))
			s.tap(here, there, true, f)
			behind := send(2, []byte("behind it"))
			if c.markers {
				behind = mpa.AppendMarked(nil, uint64(len(f)), behind, true)
			}
			s.tap(here, there, true, behind)
			sent := one(t, s.done(t))[0].payloads
			var sizes []int
			for _, p := range sent[1 : len(sent)-1] {
				sizes = append(sizes, len(p))
			}
			require.Equal(t, c.sizes, sizes)
			require.Equal(t, f, bytes.Join(sent[1:len(sent)-1], nil))
			require.Equal(t, behind, sent[len(sent)-1])
		})
	}
}

// TestAcknowledgements requires that a stream in one direction is acknowledged at intervals.
func TestAcknowledgements(t *testing.T) {
	s := newScript(t)
	s.tap(here, there, true, request(t))
	s.tap(here, there, false, reply(t))
	const n = 100
	f := send(1, make([]byte, 30000))
	for range n {
		s.tap(here, there, true, f)
	}
	packets := readFile(t, s.done(t))
	c := follow(t, packets)[0]
	require.Len(t, c[0].payloads, 1+n)
	require.LessOrEqual(t, c[0].largest, uint32(128<<10+len(f)))
	require.Less(t, len(packets), 3+2+n+n/3, "not every packet is acknowledged")
}

// TestNotMPA records bytes that are not MPA as they arrive.
func TestNotMPA(t *testing.T) {
	tooLong := request(t)
	tooLong[18], tooLong[19] = 2, 1 // 513 bytes of private data
	for _, c := range []struct {
		name  string
		first []byte
	}{
		{"another protocol", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"one byte", []byte("G")},
		{"begins like it", []byte("MPA ID Reg Frame....")},
		{"a Reply first", reply(t)},
		{"private data too long", tooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			runs := [][]byte{c.first, []byte("second"), bytes.Repeat([]byte("x"), 100000), {0}}
			for _, r := range runs {
				s.tap(there, here, false, r)
			}
			s.tap(there, here, true, []byte("what?"))
			got := one(t, s.done(t))
			require.Equal(t, bytes.Join(runs, nil), got[0].bytes())
			sizes := []int{len(c.first), 6, 65495, 100000 - 65495, 1}
			for i, p := range got[0].payloads {
				require.Len(t, p, sizes[i], "packet %d", i)
			}
			require.Equal(t, [][]byte{[]byte("what?")}, got[1].payloads)
		})
	}
}

// TestBothEnds: each byte is recorded once if both ends of a connection use the Writer, whichever
// end reports it first.
func TestBothEnds(t *testing.T) {
	s := newScript(t)
	req, rep, fpdus := request(t), reply(t), sends(6)
	s.tap(here, there, true, req)
	s.tap(there, here, false, req[:mpa.FrameLen])
	s.tap(there, here, false, req[mpa.FrameLen:])
	s.tap(there, here, true, rep)
	s.tap(here, there, false, rep)
	s.tap(here, there, true, fpdus[0])
	s.tap(there, here, false, fpdus[0])
	s.tap(here, there, true, fpdus[1], fpdus[2])
	s.tap(here, there, false, fpdus[3][:7]) // received before it is reported as sent
	s.tap(there, here, true, fpdus[3])
	s.tap(here, there, false, fpdus[3][7:], fpdus[4][:3])
	s.tap(there, here, false, fpdus[1], fpdus[2])
	s.tap(there, here, true, fpdus[4], fpdus[5])
	c := one(t, s.done(t))
	require.Equal(t, [][]byte{req, fpdus[0], fpdus[1], fpdus[2]}, c[0].payloads)
	require.Equal(t, [][]byte{rep, fpdus[3], fpdus[4], fpdus[5]}, c[1].payloads)
}

// TestBothEndsWithZones does the same with addresses that have different zones at the two ends.
func TestBothEndsWithZones(t *testing.T) {
	s := newScript(t)
	addr := func(ip, zone string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7, Zone: zone} }
	s.tap(addr("fe80::1", "a"), addr("fe80::2", "a"), true, request(t))
	s.tap(addr("fe80::2", "b"), addr("fe80::1", "b"), false, request(t))
	require.Equal(t, [][]byte{request(t)}, one(t, s.done(t))[0].payloads)
}

// TestOneEndOfMany: connections that share one end are kept apart.
func TestOneEndOfMany(t *testing.T) {
	s := newScript(t)
	const n = 50
	for i := range n {
		peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1000 + i}
		s.tap(there, peer, false, request(t))
		s.tap(there, peer, true, reply(t))
	}
	for i := range n {
		s.tap(there, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1000 + i}, false, send(1, []byte{byte(i)}))
	}
	all := follow(t, readFile(t, s.done(t)))
	require.Len(t, all, n)
	for i, c := range all {
		require.Equal(t, uint16(1000+i), c[0].from.Port())
		require.Equal(t, [][]byte{request(t), send(1, []byte{byte(i)})}, c[0].payloads)
	}
}

// TestPortsUsedAgain: a connection is distinguished from an earlier one between the same ports,
// whatever state that one was left in.
func TestPortsUsedAgain(t *testing.T) {
	req, rep, f := request(t), reply(t), send(1, []byte("hello"))
	bare := frame(t, mpa.Frame{Rev: 1})
	for _, c := range []struct {
		name          string
		script        func(s *script)
		first, second [2][][]byte // bytes that the ends sent
	}{
		{"active", func(s *script) {
			for _, r := range [][]byte{req, bare} {
				s.tap(here, there, true, r)
				s.tap(here, there, false, rep)
				s.tap(here, there, true, f)
			}
		}, [2][][]byte{{req, f}, {rep}}, [2][][]byte{{bare, f}, {rep}}},
		{"passive", func(s *script) {
			for range 2 {
				s.tap(there, here, false, req[:mpa.FrameLen])
				s.tap(there, here, false, req[mpa.FrameLen:])
				s.tap(there, here, true, rep)
			}
		}, [2][][]byte{{req}, {rep}}, [2][][]byte{{req}, {rep}}},
		{"both ends", func(s *script) {
			for range 2 {
				s.tap(here, there, true, req)
				s.tap(there, here, false, req)
				s.tap(there, here, true, rep)
				s.tap(here, there, false, rep)
			}
		}, [2][][]byte{{req}, {rep}}, [2][][]byte{{req}, {rep}}},
		{"first one end, then both", func(s *script) {
			s.tap(there, here, false, req)
			s.tap(there, here, true, rep)
			s.tap(there, here, false, f)
			s.tap(here, there, true, req)
			s.tap(there, here, false, req)
			s.tap(there, here, true, rep)
			s.tap(here, there, false, rep)
		}, [2][][]byte{{req, f}, {rep}}, [2][][]byte{{req}, {rep}}},
		{"in the middle of an FPDU", func(s *script) {
			s.tap(here, there, true, req)
			s.tap(here, there, false, rep)
			s.tap(here, there, false, f[:9])
			s.tap(here, there, true, f[:1])
			s.tap(here, there, true, req)
			s.tap(here, there, false, rep)
		}, [2][][]byte{{req, f[:1]}, {rep, f[:9]}}, [2][][]byte{{req}, {rep}}},
		{"the other way", func(s *script) {
			s.tap(here, there, true, req)
			s.tap(here, there, false, rep)
			s.tap(here, there, false, req)
			s.tap(here, there, true, rep)
		}, [2][][]byte{{req}, {rep}}, [2][][]byte{{req}, {rep}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			c.script(s)
			all := follow(t, readFile(t, s.done(t)))
			require.Len(t, all, 2)
			for i := range 2 {
				require.ElementsMatch(t, c.first[i], all[0][i].payloads)
				require.Equal(t, c.second[i], all[1][i].payloads)
			}
		})
	}
}

// TestRequestInside: bytes that look like a Request inside a Request's private data or inside an
// FPDU are not mistaken for one.
func TestRequestInside(t *testing.T) {
	inner := frame(t, mpa.Frame{Rev: 1})
	req := frame(t, mpa.Frame{Rev: 1, PrivateData: inner})
	f := send(1, append(bytes.Repeat([]byte("."), 30), inner...))
	at := bytes.Index(f, inner)
	s := newScript(t)
	s.tap(there, here, false, req[:mpa.FrameLen])
	s.tap(there, here, false, req[mpa.FrameLen:])
	s.tap(there, here, true, reply(t))
	s.tap(there, here, false, f[:at])
	s.tap(there, here, false, f[at:]) // begins like a Request but is longer
	require.Equal(t, [][]byte{req, f}, one(t, s.done(t))[0].payloads)
}

type namedAddr string

func (namedAddr) Network() string  { return "memory" }
func (a namedAddr) String() string { return string(a) }

// TestAddresses: TCP addresses are recorded as they are; others are synthetic.
func TestAddresses(t *testing.T) {
	mapped := &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 40001}
	zone := &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: "lo"}
	doc := netip.MustParsePrefix("2001:db8::/32")
	for _, c := range []struct {
		name          string
		local, remote net.Addr
		from, to      string   // "" = synthetic
		comment       []string // parts of the comment
	}{
		{"IPv4", here, there, "192.0.2.1:40001", "192.0.2.2:7306", nil},
		{"IPv4 in the form of IPv6", mapped, there, "192.0.2.1:40001", "192.0.2.2:7306", nil},
		{"IPv6", tcp("[2001:db8:5::1]:1"), tcp("[::1]:2"), "[2001:db8:5::1]:1", "[::1]:2", nil},
		{"IPv6 with a zone", zone, tcp("[fe80::2]:2"), "[fe80::1]:1", "[fe80::2]:2", nil},
		{"names", namedAddr("left"), namedAddr("right"), "", "", []string{"is memory left; ", "is memory right"}},
		{"one name", here, namedAddr("right"), "", "", []string{"is tcp 192.0.2.1:40001; ", "is memory right"}},
		{"one name for both", namedAddr("pipe"), namedAddr("pipe"), "", "",
			[]string{"is memory pipe here; ", "is memory pipe there"}},
		{"to itself", here, here, "", "", []string{"is tcp 192.0.2.1:40001 here; ", "is tcp 192.0.2.1:40001 there"}},
		{"two versions", here, tcp("[::1]:2"), "", "", []string{"is tcp 192.0.2.1:40001; ", "is tcp [::1]:2"}},
		{"none", nil, (*net.TCPAddr)(nil), "", "", []string{"is unknown here; ", "is unknown there"}},
		{"no IP", &net.TCPAddr{Port: 5}, there, "", "", []string{"is tcp :5; ", "is tcp 192.0.2.2:7306"}},
		{"a long name", namedAddr(strings.Repeat("x", 100000)), here, "", "", []string{"is memory xxx"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.tap(c.local, c.remote, true, request(t))
			s.tap(c.local, c.remote, false, reply(t))
			packets := readFile(t, s.done(t))
			conv := follow(t, packets)
			require.Len(t, conv, 1)
			require.Equal(t, [][]byte{request(t)}, conv[0][0].payloads)
			require.Equal(t, [][]byte{reply(t)}, conv[0][1].payloads)
			from, to := conv[0][0].from, conv[0][1].from
			if c.from != "" {
				require.Equal(t, [2]string{c.from, c.to}, [2]string{from.String(), to.String()})
				require.Empty(t, packets[0].comments)
				return
			}
			require.True(t, doc.Contains(from.Addr()) && doc.Contains(to.Addr()), "%v %v", from, to)
			require.NotEqual(t, from.Port(), to.Port())
			require.Len(t, packets[0].comments, 1)
			comment := packets[0].comments[0]
			require.True(t, strings.HasPrefix(comment, from.String()+" is "), comment)
			require.Contains(t, comment, "; "+to.String()+" is ")
			for _, part := range c.comment {
				require.Contains(t, comment, part)
			}
			require.LessOrEqual(t, len(comment), 4096)
			for _, p := range packets[1:] {
				require.Empty(t, p.comments)
			}
		})
	}
}

// TestNamesKeepTheirAddresses: every name has a single IP address, and every connection has its own
// ports, even between the same ends.
func TestNamesKeepTheirAddresses(t *testing.T) {
	s := newScript(t)
	const n = 300
	for i := range n {
		s.tap(namedAddr("server"), namedAddr(fmt.Sprint("client ", i)), false, request(t))
	}
	s.tap(namedAddr("server"), namedAddr("client 7"), true, reply(t))
	s.tap(namedAddr("server"), namedAddr("client 7"), false, request(t))
	all := follow(t, readFile(t, s.done(t)))
	require.Len(t, all, n+1)
	clients := make(map[netip.Addr]bool)
	ports := make(map[uint16]bool)
	for _, c := range all {
		clients[c[0].from.Addr()] = true
		require.Equal(t, all[0][1].from.Addr(), c[1].from.Addr())
		for _, h := range c {
			require.GreaterOrEqual(t, h.from.Port(), uint16(49152))
			ports[h.from.Port()] = true
		}
	}
	require.Len(t, clients, n)
	require.Len(t, ports, 2*(n+1))
	require.Equal(t, all[7][0].from.Addr(), all[n][0].from.Addr())
	require.Len(t, all[7][1].payloads, 1)
}

// TestFlush: after Flush all recorded bytes can be read, including incomplete FPDUs, the rest of
// which follows later.
func TestFlush(t *testing.T) {
	s := newScript(t)
	f := marked([][]byte{send(1, make([]byte, 1000)), send(2, []byte("second")), send(3, make([]byte, 600))})
	req := frame(t, mpa.Frame{Rev: 1})
	rep := frame(t, mpa.Frame{Reply: true, Rev: 1, Markers: true})
	sent := func() [][]byte {
		require.NoError(t, s.Flush())
		return one(t, s.file.Bytes())[0].payloads
	}
	s.tap(here, there, true, req)
	require.Equal(t, [][]byte{req}, sent())
	s.tap(here, there, false, rep)
	s.tap(here, there, true, f[0][:5])
	require.Equal(t, [][]byte{req}, sent(), "how long it is cannot be told yet: marker and half of the length field")
	s.tap(here, there, true, f[0][5:20])
	require.Equal(t, [][]byte{req, f[0][:20]}, sent())
	require.Equal(t, [][]byte{req, f[0][:20]}, sent(), "once")
	s.tap(here, there, true, f[0][20:500])
	require.Equal(t, [][]byte{req, f[0][:20], f[0][20:500]}, sent())
	s.tap(here, there, true, f[0][500:], f[1], f[2][:100])
	s.tap(here, there, true, f[2][100:])
	require.Equal(t, [][]byte{req, f[0][:20], f[0][20:500], f[0][500:], f[1], f[2]}, sent())
	s.done(t)
}

// TestCloseWritesTheRest: Close writes all incomplete units.
func TestCloseWritesTheRest(t *testing.T) {
	req, rep, f := request(t), reply(t), send(1, []byte("hello"))
	for _, c := range []struct {
		name string
		n    [2]int // bytes that each end sends
	}{
		{"half a Request", [2]int{10, 0}},
		{"half the private data", [2]int{25, 0}},
		{"half a Reply", [2]int{len(req), 17}},
		{"one byte of a length field", [2]int{len(req) + 1, len(rep)}},
		{"half an FPDU", [2]int{len(req) + 20, len(rep) + 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			streams := [2][]byte{append(slices.Clone(req), f...), append(slices.Clone(rep), f...)}
			for i, b := range streams {
				if b = b[:c.n[i]]; len(b) > 0 {
					s.tap(here, there, i == 0, b)
				}
			}
			got := one(t, s.done(t))
			for i, b := range streams {
				require.Equal(t, b[:c.n[i]], append([]byte{}, got[i].bytes()...))
			}
		})
	}
}

// TestBoundedMemory: the memory for incomplete FPDUs is bounded. If many connections stop in the
// middle of one, the incomplete FPDUs are written.
func TestBoundedMemory(t *testing.T) {
	s := newScript(t)
	const n = 200
	part := send(1, make([]byte, 60000))[:60000]
	for i := range n {
		peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1000 + i}
		s.tap(there, peer, false, request(t))
		s.tap(there, peer, true, reply(t))
		s.tap(there, peer, false, part)
	}
	require.Greater(t, s.file.Len(), n*len(part)-8<<20, "of 12 MB at most 4 MiB are held")
	require.Less(t, s.file.Len(), n*len(part), "and not nothing")
	all := follow(t, readFile(t, s.done(t)))
	require.Len(t, all, n)
	for _, c := range all {
		require.Equal(t, [][]byte{request(t), part}, c[0].payloads)
	}
}

// TestPartsThatAreCompleted: bytes no longer held do not count.
func TestPartsThatAreCompleted(t *testing.T) {
	s := newScript(t)
	s.tap(here, there, true, request(t))
	s.tap(here, there, false, reply(t))
	const n = 200
	f := send(1, make([]byte, 60000))
	for range n {
		s.tap(here, there, true, f[:50000])
		s.tap(here, there, true, f[50000:])
	}
	require.Len(t, one(t, s.done(t))[0].payloads, 1+n)
}

// failing accepts n bytes.
type failing struct{ n int }

var errDisk = errors.New("no space left on device")

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.n {
		return f.n, errDisk
	}
	f.n -= len(b)
	return len(b), nil
}

// TestWriteErrors: the first write error is reported in all places, and nothing is written after
// it.
func TestWriteErrors(t *testing.T) {
	_, err := capture.New(&failing{10}, capture.Config{})
	require.ErrorIs(t, err, errDisk)
	require.ErrorContains(t, err, "capture: write: ")

	disk := &failing{1000}
	w, err := capture.New(disk, capture.Config{})
	require.NoError(t, err)
	s := &script{Writer: w, now: start}
	s.tap(here, there, true, request(t))
	require.NoError(t, w.Err())
	require.NoError(t, w.Flush())
	s.tap(here, there, false, reply(t))
	s.tap(here, there, true, send(1, make([]byte, 2000)))
	err = w.Flush()
	require.ErrorIs(t, err, errDisk)
	require.Equal(t, err, w.Err())
	disk.n = 1 << 20
	s.tap(here, there, true, send(2, make([]byte, 200000)))
	require.Equal(t, err, w.Flush())
	require.Equal(t, err, w.Close())
	require.Equal(t, err, w.Close())
	require.Equal(t, 1<<20, disk.n, "nothing is written behind a gap")

	// Without Flush the error occurs when the buffer is full.
	w, err = capture.New(&failing{1000}, capture.Config{})
	require.NoError(t, err)
	s = &script{Writer: w, now: start}
	s.tap(here, there, true, request(t))
	s.tap(here, there, false, reply(t))
	for i := range 4 {
		s.tap(here, there, true, send(uint32(i), make([]byte, 60000)))
	}
	require.ErrorIs(t, w.Err(), errDisk)
	require.ErrorIs(t, w.Close(), errDisk)
}

func TestClose(t *testing.T) {
	s := newScript(t)
	s.tap(here, there, true, request(t))
	file := slices.Clone(s.done(t))
	s.tap(here, there, false, reply(t))
	s.tap(there, here, false, request(t))
	err := s.Flush()
	require.ErrorIs(t, err, verbs.ErrClosed)
	require.NotEqual(t, verbs.ErrClosed, err)
	require.NoError(t, s.Err())
	require.NoError(t, s.Close())
	require.Equal(t, file, s.file.Bytes(), "after Close nothing is recorded")
	require.Len(t, one(t, file)[0].payloads, 1)
	require.NoError(t, (*capture.Writer)(nil).Close())
}

// TestEmpty writes a file without connections, and one from calls without bytes.
func TestEmpty(t *testing.T) {
	require.Empty(t, readFile(t, newScript(t).done(t)))
	s := newScript(t)
	s.tap(here, there, true)
	s.tap(here, there, true, nil, []byte{})
	require.Empty(t, readFile(t, s.done(t)))
}

func TestConfig(t *testing.T) {
	head := func(cfg capture.Config) (pcapgo.NgInterface, pcapgo.NgSectionInfo) {
		var file bytes.Buffer
		w, err := capture.New(&file, cfg)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
		require.NoError(t, err)
		_, _, err = r.ReadPacketData()
		require.ErrorIs(t, err, io.EOF)
		i, err := r.Interface(0)
		require.NoError(t, err)
		return i, r.SectionInfo()
	}
	i, section := head(capture.Config{})
	require.Equal(t, "usiw", i.Name)
	require.Equal(t, layers.LinkTypeRaw, i.LinkType)
	require.EqualValues(t, 9, i.TimestampResolution)
	require.Equal(t, "goverbs", section.Application)
	require.Contains(t, section.Comment, "headers are made up")
	long := strings.Repeat("x", 65535)
	i, section = head(capture.Config{Name: "usiw7", Comment: long})
	require.Equal(t, "usiw7", i.Name)
	require.Equal(t, long, section.Comment)
	for field, cfg := range map[string]capture.Config{"Name": {Name: long + "x"}, "Comment": {Comment: long + "x"}} {
		_, err := capture.New(io.Discard, cfg)
		require.ErrorIs(t, err, verbs.ErrLimit)
		require.ErrorContains(t, err, "Config."+field+": bytes: 65536 exceeds the limit 65535")
	}
}

// TestConcurrent: NICs, a goroutine that flushes and one that reads the error use a Writer
// concurrently.
func TestConcurrent(t *testing.T) {
	s := newScript(t)
	const conns, n = 8, 200
	stop := make(chan struct{})
	var flusher, nics sync.WaitGroup
	flusher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if s.Flush() != nil || s.Err() != nil {
					panic("no error was to be expected")
				}
			}
		}
	})
	for i := range conns {
		local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 3), Port: 100 + i}
		call := func(out bool, b []byte) {
			s.Packet(&usiw.Packet{Time: start, Local: local, Remote: there, Out: out, Data: [][]byte{b}})
		}
		nics.Go(func() {
			call(true, request(t))
			call(false, reply(t))
			var ways sync.WaitGroup
			for _, out := range []bool{true, false} {
				ways.Go(func() {
					for k := range n {
						f := send(uint32(k+1), bytes.Repeat([]byte{byte(i)}, k))
						call(out, f[:k/2])
						call(out, f[k/2:])
					}
				})
			}
			ways.Wait()
		})
	}
	nics.Wait()
	close(stop)
	flusher.Wait()
	all := follow(t, readFile(t, s.done(t)))
	require.Len(t, all, conns)
	for _, c := range all {
		var stream []byte
		for k := range n {
			stream = append(stream, send(uint32(k+1), bytes.Repeat([]byte{byte(c[0].from.Port() - 100)}, k))...)
		}
		require.Equal(t, append(request(t), stream...), c[0].bytes())
		require.Equal(t, append(reply(t), stream...), c[1].bytes())
	}
}

// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"
)

// segment is a packet in a file.
type segment struct {
	time     time.Time
	from, to netip.AddrPort
	tcp      *layers.TCP
	comments []string
}

// readFile decodes every packet of a file and requires correct lengths and checksums.
func readFile(t *testing.T, file []byte) []segment {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	require.NoError(t, err)
	require.Equal(t, layers.LinkTypeRaw, r.LinkType())
	var all []segment
	for {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		require.Equal(t, len(data), ci.Length)
		p := gopacket.NewPacket(data, r.LinkType(), gopacket.DecodeOptions{})
		require.Nil(t, p.ErrorLayer())
		require.False(t, p.Metadata().Truncated)
		s := segment{time: ci.Timestamp, comments: opts.Comments, tcp: p.TransportLayer().(*layers.TCP)}
		require.NoError(t, s.tcp.SetNetworkLayerForChecksum(p.NetworkLayer()))
		err, wrong := p.VerifyChecksums()
		require.NoError(t, err)
		require.Empty(t, wrong, "checksums of packet %d", len(all))
		var src, dst []byte
		switch ip := p.NetworkLayer().(type) {
		case *layers.IPv4:
			src, dst = ip.SrcIP, ip.DstIP
			require.Equal(t, len(data), int(ip.Length))
		case *layers.IPv6:
			src, dst = ip.SrcIP, ip.DstIP
			require.Equal(t, len(data), 40+int(ip.Length))
		default:
			require.Fail(t, "no IP")
		}
		s.from, s.to = address(src, s.tcp.SrcPort), address(dst, s.tcp.DstPort)
		require.NotEqual(t, s.from, s.to)
		all = append(all, s)
	}
}

func address(ip []byte, port layers.TCPPort) netip.AddrPort {
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, uint16(port))
}

// half is what one end of a connection sent.
type half struct {
	from     netip.AddrPort
	first    uint32 // its initial sequence number
	next     uint32
	acked    uint32   // acknowledged by the other end
	payloads [][]byte // payloads of its packets, except empty ones
	times    []time.Time
	largest  uint32 // most bytes in flight
}

// bytes returns the stream of a half.
func (h *half) bytes() []byte { return bytes.Join(h.payloads, nil) }

// conversation is a connection in a file, starting with the end that opened it.
type conversation [2]half

// follow assembles packets into connections and requires that they obey the rules of TCP: a
// handshake, sequence numbers without gaps, and acknowledgements that never go back and never
// exceed what is in the file.
func follow(t *testing.T, packets []segment) []*conversation {
	t.Helper()
	var all []*conversation
	type ends struct{ a, b netip.AddrPort }
	open := make(map[ends]*conversation)
	for i := 0; i < len(packets); i++ {
		s := packets[i]
		require.False(t, s.tcp.RST || s.tcp.FIN)
		if s.tcp.SYN {
			require.Greater(t, len(packets), i+2)
			require.Empty(t, s.tcp.Payload)
			require.False(t, s.tcp.ACK)
			c := &conversation{{from: s.from, first: s.tcp.Seq, next: s.tcp.Seq + 1}, {from: s.to}}
			answer, third := packets[i+1], packets[i+2]
			require.True(t, answer.tcp.SYN && answer.tcp.ACK && answer.from == s.to && answer.to == s.from)
			require.Equal(t, s.tcp.Seq+1, answer.tcp.Ack)
			c[1].first, c[1].next = answer.tcp.Seq, answer.tcp.Seq+1
			require.True(t, third.tcp.ACK && !third.tcp.SYN && third.from == s.from && third.to == s.to)
			require.Equal(t, [2]uint32{c[0].next, c[1].next}, [2]uint32{third.tcp.Seq, third.tcp.Ack})
			require.Equal(t, [2]time.Time{s.time, s.time}, [2]time.Time{answer.time, third.time})
			c[0].acked, c[1].acked = c[0].next, c[1].next
			for _, o := range []segment{s, answer} {
				options := make(map[layers.TCPOptionKind][]byte)
				for _, opt := range o.tcp.Options {
					options[opt.OptionType] = opt.OptionData
				}
				require.Equal(t, []byte{0xFF, 0xD7}, options[layers.TCPOptionKindMSS])
				require.Equal(t, []byte{14}, options[layers.TCPOptionKindWindowScale])
			}
			if old := open[ends{s.from, s.to}]; old != nil {
				require.NotEqual(t, old[0].first, c[0].first, "ports used again with the sequence numbers of before")
			}
			open[ends{s.from, s.to}] = c
			delete(open, ends{s.to, s.from})
			all = append(all, c)
			i += 2
			continue
		}
		c, from := open[ends{s.from, s.to}], 0
		if c == nil {
			c, from = open[ends{s.to, s.from}], 1
		}
		require.NotNil(t, c, "a packet of no connection")
		h, other := &c[from], &c[1-from]
		require.True(t, s.tcp.ACK)
		require.EqualValues(t, 65535, s.tcp.Window)
		require.Equal(t, h.next, s.tcp.Seq, "sequence number of packet %d", i)
		require.GreaterOrEqual(t, int32(s.tcp.Ack-other.acked), int32(0), "packet %d takes an acknowledgement back", i)
		require.LessOrEqual(t, int32(s.tcp.Ack-other.next), int32(0), "packet %d acknowledges what nobody sent", i)
		other.acked = s.tcp.Ack
		if n := len(s.tcp.Payload); n > 0 {
			h.next += uint32(n)
			h.payloads = append(h.payloads, s.tcp.Payload)
			h.times = append(h.times, s.time)
			h.largest = max(h.largest, h.next-h.acked)
		}
	}
	return all
}

// one returns the only connection of a file.
func one(t *testing.T, file []byte) *conversation {
	t.Helper()
	all := follow(t, readFile(t, file))
	require.Len(t, all, 1)
	return all[0]
}

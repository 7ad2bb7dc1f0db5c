// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"bufio"
	"io"
	"math"
	"net/netip"
	"runtime"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Fields of the synthetic headers.
const (
	// headerLen is the length of the IPv4 and TCP headers without options.
	headerLen = 20 + 20
	// maxPayload is the most stream bytes in a packet, limited by the length field of IPv4. The
	// handshake packets announce it as the segment size, as on a loopback interface.
	maxPayload = 1<<16 - 1 - headerLen
	// window and windowScale describe a window of 1 GiB, which no sender fills (RFC 7323).
	window      = 1<<16 - 1
	windowScale = 14
	hopLimit    = 64
)

// packet is a TCP segment to be written.
type packet struct {
	time     time.Time
	from, to netip.AddrPort
	seq, ack uint32
	syn      bool // opens the connection; ack is not valid in the first of the two packets
	answer   bool // ack is valid
	push     bool
	payload  []byte
	comment  string
}

// packetWriter builds and writes packets. The link type is raw IP, which needs no link-layer
// addresses.
type packetWriter struct {
	ng  *pcapgo.NgWriter
	buf gopacket.SerializeBuffer
	ip4 layers.IPv4
	ip6 layers.IPv6
	tcp layers.TCP

	snapLen int   // 0 = none
	limit   int64 // limit on size; 0 = none
	size    int64 // length of the file
	full    bool  // a packet would have exceeded the limit
}

// counter counts the bytes written through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// blockLen returns how many bytes a packet occupies in the file: an Enhanced Packet Block
// (draft-ietf-opsawg-pcapng section 4.3), whose only option is the comment, if any (section 3.5).
// Data and options are padded to 4 bytes.
func blockLen(stored int, comment string) int64 {
	padded := func(n int) int { return (n + 3) &^ 3 }
	n := 28 + padded(stored) + 4
	if comment != "" {
		n += 4 + padded(len(comment)) + 4
	}
	return int64(n)
}

// init writes the file header.
func (w *packetWriter) init(file io.Writer, cfg Config) (err error) {
	w.snapLen, w.limit = cfg.SnapLen, cfg.MaxBytes
	header := &counter{w: file}
	out := bufio.NewWriterSize(header, bufferSize)
	w.buf = gopacket.NewSerializeBufferExpectedSize(headerLen+20+maxPayload, 0)
	w.ng, err = pcapgo.NewNgWriterInterface(out,
		pcapgo.NgInterface{Name: cfg.Name, LinkType: layers.LinkTypeRaw, OS: runtime.GOOS,
			SnapLength: uint32(min(cfg.SnapLen, math.MaxInt32))},
		pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "goverbs", Comment: cfg.Comment,
			Hardware: runtime.GOARCH, OS: runtime.GOOS}})
	if err != nil {
		return err
	}
	err = w.ng.Flush()
	w.size = header.n
	return err
}

// synOptions are the options of the packets that open a connection.
var synOptions = []layers.TCPOption{
	{OptionType: layers.TCPOptionKindMSS, OptionData: []byte{maxPayload >> 8, maxPayload & 0xFF}},
	{OptionType: layers.TCPOptionKindNop},
	{OptionType: layers.TCPOptionKindWindowScale, OptionData: []byte{windowScale}},
}

// write writes p, unless the file is full.
func (w *packetWriter) write(p *packet) error {
	w.tcp = layers.TCP{SrcPort: layers.TCPPort(p.from.Port()), DstPort: layers.TCPPort(p.to.Port()), Seq: p.seq,
		Window: window, SYN: p.syn, PSH: p.push}
	if p.answer {
		w.tcp.ACK, w.tcp.Ack = true, p.ack
	}
	if p.syn {
		w.tcp.Options = synOptions
	}
	var ip interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	}
	if p.from.Addr().Is4() {
		w.ip4 = layers.IPv4{Version: 4, TTL: hopLimit, Flags: layers.IPv4DontFragment, Protocol: layers.IPProtocolTCP,
			SrcIP: p.from.Addr().AsSlice(), DstIP: p.to.Addr().AsSlice()}
		ip = &w.ip4
	} else {
		w.ip6 = layers.IPv6{Version: 6, HopLimit: hopLimit, NextHeader: layers.IPProtocolTCP,
			SrcIP: p.from.Addr().AsSlice(), DstIP: p.to.Addr().AsSlice()}
		ip = &w.ip6
	}
	if err := w.tcp.SetNetworkLayerForChecksum(ip); err != nil {
		return err
	}
	err := gopacket.SerializeLayers(w.buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		ip, &w.tcp, gopacket.Payload(p.payload))
	if err != nil {
		return err
	}
	b := w.buf.Bytes()
	var options pcapgo.NgPacketOptions
	if p.comment != "" {
		options.Comments = []string{p.comment}
	}
	length := len(b)
	if w.snapLen > 0 {
		b = b[:min(length, w.snapLen)]
	}
	n := blockLen(len(b), p.comment)
	if w.limit > 0 && w.size+n > w.limit {
		w.full = true
		return nil
	}
	w.size += n
	return w.ng.WritePacketWithOptions(gopacket.CaptureInfo{Timestamp: p.time, CaptureLength: len(b), Length: length},
		b, options)
}

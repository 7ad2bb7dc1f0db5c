// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// capture is a tcpdump recording of the packets at a place.
type capture struct {
	*testprogram.Program
	file string
}

// record starts a capture. The file is kept with the test run's output, if there is a place for
// that.
func (p place) record(t *testing.T) *capture {
	t.Helper()
	dir := os.Getenv("BED_OUT")
	if dir == "" {
		dir = t.TempDir()
	}
	file := filepath.Join(dir, strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())+".pcap")
	c := &capture{start(t, []string{"tcpdump", "-Z", "root", "-n", "-U", "--immediate-mode", "-B", "65536", "-s", "0",
		"-i", p.capture, "-w", file, "tcp"}), file}
	c.Out.Await(t, "listening on")
	return c
}

// finding holds tshark's results for the connections to a port.
type finding struct {
	checked, unchecked int            // FPDUs with a CRC, all correct, and FPDUs of connections without CRC
	ops                map[string]int // FPDUs by opcode
}

// judged stops the recording and checks it with tshark: nothing is malformed, no packet is missing,
// no CRC is wrong, and every packet with data was recognized. It returns the findings for each
// port.
func (c *capture) judged(t *testing.T) map[int]*finding {
	t.Helper()
	// When tcpdump is stopped, it drops packets that it has not yet read from the kernel.
	for size := int64(-1); ; time.Sleep(quietTime) {
		info, err := os.Stat(c.file)
		require.NoError(t, err)
		if info.Size() == size {
			break
		}
		size = info.Size()
	}
	require.NoError(t, c.Signal(syscall.SIGINT))
	c.Ends(t, 0)
	require.Contains(t, c.Out.String(), "\n0 packets dropped by kernel")
	// Only the text output shows whether a CRC is correct. There is a single run because tshark
	// takes long to start in the guest.
	cmd := exec.Command("tshark", "-n", "-r", c.file, "-o", "tcp.try_heuristic_first:TRUE", "--disable-protocol",
		"smb_direct", "--disable-protocol", "rpcordma", "-Y", "tcp.len>0", "-O", "tcp,iwarp_mpa,iwarp_ddp_rdmap")
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NotContains(t, string(out), "Malformed Packet")
	require.NotContains(t, string(out), "Bad CRC32")
	require.NotContains(t, string(out), "segment(s) not captured")
	require.Equal(t, strings.Count(string(out), "\nTransmission Control Protocol"),
		strings.Count(string(out), "\nFrame")+1)

	findings := make(map[int]*finding)
	var ends [2]*finding // of the ports of the current packet
	for line := range strings.Lines(string(out)) {
		var ports [2]int
		const tcp = "Transmission Control Protocol, Src Port: %d, Dst Port: %d"
		if _, err := fmt.Sscanf(line, tcp, &ports[0], &ports[1]); err == nil {
			for i, port := range ports {
				if findings[port] == nil {
					findings[port] = &finding{ops: make(map[string]int)}
				}
				ends[i] = findings[port]
			}
			continue
		}
		text := strings.TrimSpace(line)
		_, op, _ := strings.Cut(text, " = OpCode: ")
		op, _, _ = strings.Cut(op, " (")
		for _, f := range ends {
			switch {
			case f == nil: // above the first packet's ports
			case op != "":
				f.ops[op]++
			case strings.HasSuffix(text, "(Good CRC32)"):
				f.checked++
			case strings.HasPrefix(text, "CRC: "):
				f.unchecked++
			}
		}
	}
	return findings
}

// The operations as tshark names them.
const (
	opWrite        = "Write"
	opReadRequest  = "Read Request"
	opReadResponse = "Read Response"
	opSend         = "Send"
	opTerminate    = "Terminate"
)

// TestCaptureOfRping checks captures of both rpings on the cable, each in both roles.
func TestCaptureOfRping(t *testing.T) {
	needKernel(t)
	ours := []string{goverbs(t), "rping"}
	p := cable(t)
	n := pings{3, 4000}
	c := p.record(t)
	ports := []string{nextPort(), nextPort()}

	at := []string{"-a", kernelHost, "-p", ports[0]}
	server := start(t, rping, []string{"-s", "-d"}, at, n.options())
	server.Out.Await(t, "rdma_listen")
	finishes(t, start(t, p.under, ours, []string{"-c"}, at, n.options(), []string{"--crc", "on"}))
	finishes(t, server)

	at = []string{"-a", p.host, "-p", ports[1]}
	server = start(t, p.under, ours, []string{"-s", "-d"}, at, n.options())
	server.Out.Await(t, "listening")
	finishes(t, startClient(t, rping, []string{"-c"}, at, n.options()))
	finishes(t, server)

	findings := c.judged(t)
	for i, port := range ports {
		number, err := strconv.Atoi(port)
		require.NoError(t, err)
		f := findings[number]
		require.NotNil(t, f, port)
		// The user-space RNIC requests CRC from siw if it is configured to.
		require.Equal(t, i == 0, f.checked > 0)
		require.Equal(t, i == 1, f.unchecked > 0)
		require.Equal(t, n.count, f.ops[opReadRequest])
		// 4000 bytes do not fit into one segment of the cable
		require.GreaterOrEqual(t, f.ops[opReadResponse], 2*n.count)
		require.GreaterOrEqual(t, f.ops[opWrite], 2*n.count)
		require.GreaterOrEqual(t, f.ops[opSend], 4*n.count-1) // two per side and ping, except for the last one
	}
}

// port returns the port of the listener.
func (l *link) port(t *testing.T, cfg linkConfig) int {
	t.Helper()
	s := l.kernel
	if cfg.kernelActive {
		s = l.user
	}
	_, text, err := net.SplitHostPort(s.id.LocalAddr().String())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	return port
}

// TestCaptureOfTraffic checks captures of every kind of operation in both directions, on links of
// every kind.
func TestCaptureOfTraffic(t *testing.T) {
	needKernel(t)
	p := cable(t)
	c := p.record(t)
	ports := make(map[int]linkConfig)
	p.links(t, func(t *testing.T, cfg linkConfig) {
		cfg.memory = 1 << 16
		l := p.link(t, cfg)
		ports[l.port(t, cfg)] = cfg
		for _, n := range []int{1, 3, 1425, 4095, 20000} { // tshark considers an empty Send malformed
			l.user.sends(l.kernel, n)
			l.kernel.sends(l.user, n)
			l.user.writes(l.kernel, n)
			l.kernel.writes(l.user, n)
			l.user.reads(l.kernel, n)
			l.kernel.reads(l.user, n)
		}
		require.NoError(t, l.user.id.Disconnect())
		l.kernel.ended()
	})
	require.Len(t, ports, 4)
	findings := c.judged(t)
	for port, cfg := range ports {
		f := findings[port]
		require.NotNil(t, f)
		if cfg.nic.CRC == usiw.On {
			require.Zero(t, f.unchecked)
			require.Positive(t, f.checked)
		} else {
			require.Zero(t, f.checked)
			require.Positive(t, f.unchecked)
		}
		require.Equal(t, 10, f.ops[opReadRequest])
		for _, op := range []string{opWrite, opReadResponse, opSend} {
			require.GreaterOrEqual(t, f.ops[op], 2*(1+1+1+3+14), op)
		}
		require.Zero(t, f.ops[opTerminate])
	}
}

// TestCaptureOfTerminates checks captures of connections that either side terminates.
func TestCaptureOfTerminates(t *testing.T) {
	needKernel(t)
	p := cable(t)
	c := p.record(t)
	var ports []int
	for _, offender := range []string{"user space", "kernel"} {
		l := p.link(t, linkConfig{memory: 4096})
		ports = append(ports, l.port(t, linkConfig{}))
		s, other := l.user, l.kernel
		if offender == "kernel" {
			s, other = other, s
		}
		wr := target(s, verbs.WRRDMAWrite, other.mem, 0)
		wr.RKey ^= 0x5a5a5a00
		s.post(wr)
		other.ended()
		s.ended()
	}
	findings := c.judged(t)
	for _, port := range ports {
		require.NotNil(t, findings[port])
		require.Equal(t, 1, findings[port].ops[opTerminate])
	}
}

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package interop

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/verbs"
)

// Users that do not support RFC 7306: programs on the driver's library, and the kernel's own
// clients. With the module they must get the same as from siw.

// extensions are messages with every opcode of RFC 7306. Each must be refused like an opcode that
// does not exist.
func extensions() map[string][]byte {
	eight := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	return map[string][]byte{
		"immediate":         untagged(rdmap.OpImmediate, ddp.QNSend, 1, eight...),
		"immediate with SE": untagged(rdmap.OpImmediateSE, ddp.QNSend, 1, eight...),
		"atomic":            fetchAdd(1, 0x200, 0x1000),
		"atomic's answer":   untagged(rdmap.OpAtomicResponse, ddp.QNAtomicResponse, 1, make([]byte, 12)...),
	}
}

// plain starts the program in testdata/plain, built at path, and connects to it.
func plain(t *testing.T, path string, more ...string) (*raw, *testprogram.Program) {
	t.Helper()
	port := nextPort()
	p := start(t, append([]string{path, kernelHost, port}, more...))
	p.Out.Await(t, "listening")
	r := here.dial(t, net.JoinHostPort(kernelHost, port))
	r.write(request(flagS, mpa.Rev2, word(4, 4)...))
	r.frame()
	return r, p
}

// TestModulePlainProgram: a peer of a program on the driver's library cannot complete the program's
// receives with messages that the program does not support. The program's device has no atomics,
// and requests of RFC 7306 in its ring end its connection.
func TestModulePlainProgram(t *testing.T) {
	needModule(t)
	unharmed(t)
	path := filepath.Join(t.TempDir(), "plain")
	command(t, "cc", "-o", path, "testdata/plain/plain.c", "-lrdmacm", "-libverbs")
	for name, u := range extensions() {
		t.Run(name, func(t *testing.T) {
			r, p := plain(t, path)
			assert.Contains(t, p.Out.String(), "atomic_cap 0\n")
			p.Out.Await(t, "accepted")
			_, said, _ := strings.Cut(p.Out.String(), "accepted: ")
			var key uint32
			var at uint64
			_, err := fmt.Sscanf(said, "key %d address %d", &key, &at)
			require.NoError(t, err)
			// The length that a completion must not have.
			r.send(tagged(rdmap.OpWrite, true, key, at, make([]byte, 100)...), u)
			r.terminates(0, 2, 6, nil)
			p.Ends(t, 0)
			require.Contains(t, p.Out.String(), "receive: Work Request Flushed Error")
		})
	}
	for _, opcode := range []string{"4", "6", "7"} {
		t.Run("request "+opcode, func(t *testing.T) {
			r, p := plain(t, path, opcode)
			r.send(tagged(rdmap.OpWrite, true, 1, 0))
			require.True(t, p.EndsWithin(waitLimit), "%v", p)
			require.Contains(t, p.Out.String(), "request: local QP operation error")
			b, _ := r.rest()
			if len(b) > 0 {
				require.Equal(t, byte(rdmap.OpTerminate), b[mpa.LengthLen+1]&0xf, "% x", b)
			}
		})
	}
	t.Run("answers all else", func(t *testing.T) {
		r, p := plain(t, path)
		r.send(untagged(rdmap.OpSend, ddp.QNSend, 1, 1, 2, 3, 4, 5))
		p.Ends(t, 0)
		require.Contains(t, p.Out.String(), "receive: success, 5 bytes")
	})
}

// TestModuleAtomicCap: the device has atomics for this program, which requests RFC 7306, but not
// for others.
func TestModuleAtomicCap(t *testing.T) {
	needModule(t)
	attr, err := kernelSide(t, 4096).ctx.QueryDevice()
	require.NoError(t, err)
	require.Equal(t, verbs.AtomicHCA, attr.AtomicCap)
	out, err := exec.Command("ibv_devinfo", "-v", "-d", kernelDevice).Output()
	require.NoError(t, err)
	require.Regexp(t, `atomic_cap:\s+ATOMIC_NONE \(0\)`, string(out))
}

// nvmeConnect returns the private data with which an NVMe host requests an admin queue (NVMe over
// RDMA, struct nvme_rdma_cm_req): recfmt, qid, hrqsize, hsqsize, cntlid.
func nvmeConnect() []byte {
	b := make([]byte, 32)
	binary.LittleEndian.PutUint16(b[4:], 32)
	binary.LittleEndian.PutUint16(b[6:], 31)
	return b
}

// nvmeTarget makes the kernel an NVMe target over RDMA at a port of the kernel's device, as
// nvmetcli does.
func nvmeTarget(t *testing.T, port string) {
	t.Helper()
	const top = "/sys/kernel/config"
	command(t, "modprobe", "nvmet-rdma")
	if _, err := os.Stat(top + "/nvmet"); err != nil {
		command(t, "mount", "-t", "configfs", "none", top)
	}
	t.Cleanup(func() { assert.NoError(t, try("modprobe", "-r", "nvmet-rdma", "nvmet")) })
	set := func(path, value string) { require.NoError(t, os.WriteFile(path, []byte(value), 0)) }
	directory := func(path string) {
		require.NoError(t, os.Mkdir(path, 0o755))
		t.Cleanup(func() { assert.NoError(t, os.Remove(path)) })
	}
	subsystem, at := top+"/nvmet/subsystems/goverbs", top+"/nvmet/ports/1"
	directory(subsystem)
	set(subsystem+"/attr_allow_any_host", "1")
	directory(at)
	set(at+"/addr_trtype", "rdma")
	set(at+"/addr_adrfam", "ipv4")
	set(at+"/addr_traddr", kernelHost)
	set(at+"/addr_trsvcid", port)
	require.NoError(t, os.Symlink(subsystem, at+"/subsystems/goverbs"))
	t.Cleanup(func() { assert.NoError(t, os.Remove(at+"/subsystems/goverbs")) })
}

// TestModuleKernelClient: a peer of a client in the kernel, an NVMe target, cannot complete the
// client's receives with messages that it does not support.
func TestModuleKernelClient(t *testing.T) {
	needModule(t)
	unharmed(t)
	port := nextPort()
	nvmeTarget(t, port)
	for name, u := range extensions() {
		t.Run(name, func(t *testing.T) {
			r := here.dial(t, net.JoinHostPort(kernelHost, port))
			r.write(request(flagS, mpa.Rev2, word(4, 4, nvmeConnect()...)...))
			require.Zero(t, r.frame()[16]&flagR, "accepted")
			r.send(u)
			r.terminates(0, 2, 6, nil)
		})
	}
}

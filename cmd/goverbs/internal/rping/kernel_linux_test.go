// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// kernelRPing starts a server on a device at an address and returns its port.
func kernelRPing(t *testing.T, device, address string, args ...string) (*clitest.Running, string) {
	t.Helper()
	return rpingServer(t, append([]string{"--device", device, "-a", address}, args...)...)
}

func TestKernelRPing(t *testing.T) {
	for _, device := range []string{"rxe0", "siw0"} {
		for family, address := range clitest.KernelAddress[device] {
			t.Run(device+[]string{" IPv4", " IPv6"}[family], func(t *testing.T) {
				rdmatest.KernelDevice(t, device)
				s, port := kernelRPing(t, device, address, "-vV", "-C10", "-S1000")
				client := []string{"rping", "-cvV", "--device", device, "-a", address, "-I", address, "-p", port,
					"-C10", "-S1000"}
				got := clitest.Run(t, client...)
				require.Equal(t, clitest.Done, got.Code, got.Stderr)
				require.Equal(t, pingLines("ping data: ", 10, 1000), pinged(t, got.Stdout, 10))
				require.Equal(t, clientDone, got.Stderr)
				r := s.End(t)
				require.Equal(t, clitest.Done, r.Code, r.Stderr)
				require.Equal(t, pingLines("server ping data: ", 10, 1000), dataLines("server ping data: ", r.Stdout))
				require.Equal(t, serverGone, r.Stderr)
				require.Contains(t, r.Stdout, "device "+device+" (ibverbs)\n")

				// The listener is gone.
				got = clitest.Run(t, client...)
				require.Equal(t, clitest.Failed, got.Code)
				require.Contains(t, got.Stderr,
					"cma event RDMA_CM_EVENT_REJECTED, error "+map[string]string{"rxe0": "8", "siw0": "-111"}[device]+
						"\n")
			})
		}
	}
}

func TestKernelRPingEnds(t *testing.T) {
	for _, device := range []string{"rxe0", "siw0"} {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			address := clitest.KernelAddress[device][0]
			s, port := kernelRPing(t, device, address, "-C4")
			c := clitest.Run(t, "rping", "-cd", "-C3", "--device", "auto", "-a", address, "-p", port)
			require.Equal(t, clitest.Done, c.Code, c.Stderr)
			require.Contains(t, c.Stdout, "device "+device+" (ibverbs)\n", "the one that owns the address")
			r := s.End(t)
			require.Equal(t, clitest.Failed, r.Code)
			require.Equal(t, serverGone+"goverbs rping: the peer disconnected after 3 of 4 pings\n", r.Stderr)

			s, port = kernelRPing(t, device, address, "-S99")
			c = clitest.Run(t, "rping", "-c", "-S100", "--device", device, "-a", address, "-p", port)
			require.Equal(t, clitest.Failed, c.Code)
			require.Contains(t, c.Stderr, "client DISCONNECT EVENT...\nwait for RDMA_WRITE_ADV state 10\n")
			r = s.End(t)
			require.Equal(t, clitest.Failed, r.Code)
			require.Equal(t, "goverbs rping: ping 0: the client has 100 bytes, the server room for 1 to 99 (-S)\n",
				r.Stderr)

			s, port = kernelRPing(t, device, address, "-P", "-V", "-S200")
			endless := clitest.Start(t, "rping", "-cv", "--device", device, "-a", address, "-p", port)
			endless.Stdout.Await(t, "\n")
			var clients []*clitest.Running
			for i := range 3 {
				clients = append(clients,
					clitest.Start(t, "rping", "-cvV", "-C20", "-S", strconv.Itoa(100+i), "--device", device, "-a",
						address, "-p", port))
			}
			for i, c := range clients {
				r := c.End(t)
				require.Equal(t, clitest.Done, r.Code, r.Stderr)
				require.Equal(t, pingLines("ping data: ", 20, 100+i), pinged(t, r.Stdout, 20))
			}
			// A killed client does not disturb others.
			require.NoError(t, endless.Kill())
			last := clitest.Run(t, "rping", "-cV", "-C3", "--device", device, "-a", address, "-p", port)
			require.Equal(t, clitest.Done, last.Code, last.Stderr)
			s.Interrupt(t, syscall.SIGTERM)
			clitest.NothingRuns(t)
		})
	}
}

// On two hosts.
func TestKernelTwoHosts(t *testing.T) {
	for _, d := range []string{"siw1", "siw2", "rxe1", "rxe2"} {
		rdmatest.KernelDevice(t, d)
	}
	t.Run("rping siw2 to siw1", func(t *testing.T) {
		s := clitest.StartIn(t, "h1", "rping", "-sdvV", "-C5", "--device", "siw1", "-a", "fd00:77::1")
		s.Stdout.Await(t, "listening on")
		c := clitest.StartIn(t, "h2", "rping", "-cvV", "-C5", "--device", "siw2", "-a", "fd00:77::1").End(t)
		require.Equal(t, clitest.Done, c.Code, c.Stderr)
		require.Equal(t, pingLines("ping data: ", 5, 64), pinged(t, c.Stdout, 5))
		r := s.End(t)
		require.Equal(t, clitest.Done, r.Code, r.Stderr)
	})
	t.Run("rping rxe1 to rxe2", func(t *testing.T) {
		s, port := kernelRPing(t, "rxe2", "10.78.0.2", "-V", "-C5")
		c := clitest.Run(t, "rping", "-cvV", "-C5", "--device", "rxe1", "-I", "10.78.0.1", "-a", "10.78.0.2", "-p",
			port)
		require.Equal(t, clitest.Done, c.Code, c.Stderr)
		require.Equal(t, pingLines("ping data: ", 5, 64), pinged(t, c.Stdout, 5))
		r := s.End(t)
		require.Equal(t, clitest.Done, r.Code, r.Stderr)
		require.Contains(t, r.Stdout, "device rxe2 (ibverbs)\n")
	})
}

// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// kernelDevices are the guest's devices with their addresses.
var kernelDevices = []struct{ name, ip, ip6 string }{
	{"rxe0", "10.78.0.1", "fd00:78::1"},
	{"siw0", "10.77.0.1", "fd00:77::1"},
}

func eachKernelDevice(t *testing.T, run func(t *testing.T, cfg rsocket.Config, ip, ip6 string)) {
	for _, d := range kernelDevices {
		t.Run(d.name, func(t *testing.T) {
			rdmatest.KernelDevice(t, d.name)
			dev, err := verbs.DeviceByName(d.name)
			require.NoError(t, err)
			run(t, rsocket.Config{Device: dev}, d.ip, d.ip6)
		})
	}
}

func TestKernelConn(t *testing.T) {
	eachKernelDevice(t, func(t *testing.T, cfg rsocket.Config, ip, _ string) {
		nettest.TestConn(t, pipe(t, cfg, cfg, net.JoinHostPort(ip, "0")))
	})
}

// TestKernelStream sends a megabyte in each direction concurrently, over IPv4 and IPv6, with
// buffers of every size; each side closes after its own data.
func TestKernelStream(t *testing.T) {
	eachKernelDevice(t, func(t *testing.T, cfg rsocket.Config, ip, ip6 string) {
		tiny := cfg
		tiny.RecvBuffer, tiny.SendBuffer, tiny.RecvQueue, tiny.SendQueue, tiny.Inline = 4096, 4096, 16, 16, rsocket.None
		for _, c := range []struct {
			name         string
			dial, accept rsocket.Config
			host         string
			n            int
		}{
			{"IPv4", cfg, cfg, ip, 1 << 20},
			{"IPv6", cfg, cfg, ip6, 1 << 20},
			{"tiny", tiny, tiny, ip, 1 << 18},
			{"tiny to default", tiny, cfg, ip, 1 << 18},
		} {
			t.Run(c.name, func(t *testing.T) {
				c1, c2 := pairOn(t, c.dial, c.accept, net.JoinHostPort(c.host, "0"))
				require.Equal(t, cfg.Device.Name(), c1.Device().Name())
				exchange(t, c1, c2, c.n)
			})
		}
	})
}

// exchange sends n random bytes in each direction in pieces of random sizes, closes both
// directions, and compares checksums.
func exchange(t *testing.T, c1, c2 *rsocket.Conn, n int) {
	t.Helper()
	type sum = [sha256.Size]byte
	sent, got := make(chan sum, 2), make(chan sum, 2)
	var errs [4]chan error
	for i, c := range []*rsocket.Conn{c1, c2} {
		errs[i], errs[2+i] = make(chan error, 1), make(chan error, 1)
		go func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			h := sha256.New()
			var err error
			for left := n; left > 0 && err == nil; {
				p := make([]byte, min(left, 1+rnd.IntN(1<<rnd.IntN(17))))
				for j := range p {
					p[j] = byte(rnd.Uint32())
				}
				h.Write(p)
				_, err = c.Write(p)
				left -= len(p)
			}
			if err == nil {
				err = c.CloseWrite()
			}
			sent <- sum(h.Sum(nil))
			errs[i] <- err
		}()
		go func() {
			h := sha256.New()
			_, err := io.Copy(h, io.LimitReader(c, int64(n)+1)) // by Read, in pieces
			got <- sum(h.Sum(nil))
			errs[2+i] <- err
		}()
	}
	for _, e := range errs {
		require.NoError(t, <-e)
	}
	require.ElementsMatch(t, []sum{<-sent, <-sent}, []sum{<-got, <-got})
	require.NoError(t, c1.Close())
	require.NoError(t, c2.Close())
}

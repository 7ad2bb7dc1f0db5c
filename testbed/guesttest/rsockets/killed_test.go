// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package rsockets

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// errReset is the error of a connection whose peer is gone.
const errReset = syscall.ECONNRESET

// asFlood is the variable that makes the test binary a program that connects, sends a byte, and
// then sends or receives until it is killed: "DEVICE ADDRESS sends|receives".
const asFlood = "GOVERBS_TEST_FLOOD"

func flood(where string) {
	err := func() error {
		words := strings.Fields(where)
		nic, err := usiw.Register(usiw.Config{})
		if err != nil {
			return err
		}
		defer nic.Close()
		dev, err := verbs.DeviceByName(words[0])
		if err != nil {
			return err
		}
		d := rsocket.Dialer{Config: rsocket.Config{Device: dev}, Timeout: limit}
		c, err := d.Dial("tcp", words[1])
		if err != nil {
			return err
		}
		if _, err := c.Write(source(0, 1)); err != nil {
			return err
		}
		if words[2] == "receives" {
			_, err := io.Copy(io.Discard, c)
			return err
		}
		for at := 1; ; at += 1000 {
			if _, err := c.Write(source(at, 1000)); err != nil {
				return err
			}
		}
	}()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestGoKilled: the Go program is killed while it sends and while it receives, and the Go program
// it is connected to notices. A C program need not: while its calls block, librdmacm version 44
// keeps waiting, even for a C program that was killed.
func TestGoKilled(t *testing.T) {
	everywhere(t, func(t *testing.T, p place, _ *verbs.Device) {
		kernel, err := verbs.DeviceByName(p.kernel)
		require.NoError(t, err)
		for _, what := range []string{"sends", "receives"} {
			t.Run(what, func(t *testing.T) {
				lc := rsocket.ListenConfig{Config: rsocket.Config{Device: kernel, KeepAlive: 500 * time.Millisecond}}
				ln, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(p.peer, "0"))
				require.NoError(t, err)
				t.Cleanup(func() { _ = ln.Close() })
				cmd := exec.Command("/proc/self/exe")
				cmd.Env = append(os.Environ(), asFlood+"="+p.device+" "+ln.Addr().String()+" "+what)
				program := run(t, cmd)
				require.NoError(t, ln.SetDeadline(time.Now().Add(limit)))
				c := accept(t, ln)
				receives(t, c, 0, 1)
				written := make(chan error, 1)
				if what == "receives" {
					go func() {
						var err error
						for err == nil {
							_, err = c.Write(source(0, 1000))
						}
						written <- err
					}()
				}
				require.NoError(t, program.Kill())
				_, err = io.Copy(io.Discard, c)
				requireReset(t, err)
				if what == "receives" {
					requireReset(t, <-written)
				}
			})
		}
	})
}

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package faults

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/testbed/load"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(peerVariable); role != "" {
		os.Exit(peerMain(strings.Fields(role)))
	}
	rdmatest.Main(m)
}

// soon bounds the wait for something that must happen without delay. It is longer than some
// timeouts of kernel siw and of the connection managers.
const soon = 20 * time.Second

// site is a device and the address at which it listens.
type site struct {
	name   string
	listen string
	dev    *verbs.Device
}

var listenOn = map[string]string{
	"usiw": "127.0.0.1:0", "siw0": "10.77.0.1:0", "rxe0": "10.78.0.1:0",
	"rxe1": "10.78.0.1:0", "rxe2": "10.78.0.2:0", "siw1": "10.77.0.1:0", "siw2": "10.77.0.2:0",
}

// open finds a device. usiw is a NIC of package usiw, created for the test, and ib:NAME another
// device with InfiniBand semantics.
func open(t *testing.T, name string) *site {
	t.Helper()
	if below, ok := strings.CutPrefix(name, "ib:"); ok {
		s := open(t, below)
		dev, err := ibcompat.Wrap(s.dev, ibcompat.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dev.CloseShared()) })
		s.name, s.dev = name, dev
		return s
	}
	s := &site{name: name, listen: listenOn[name]}
	if name == "usiw" {
		nic, err := usiw.New(usiw.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, nic.Close()) })
		s.dev = nic.Device()
		return s
	}
	rdmatest.KernelDevice(t, name)
	dev, err := verbs.DeviceByName(name)
	require.NoError(t, err)
	s.dev = dev
	return s
}

// each runs a test for several devices. All of them run only in the guest, which is recognized by a
// kernel device.
func each(t *testing.T, beside string, names []string, run func(t *testing.T, s *site)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			rdmatest.KernelDevice(t, beside)
			run(t, open(t, name))
		})
	}
}

// serve creates a node in this process.
func (s *site) serve(t *testing.T) *load.Node {
	t.Helper()
	n, err := load.Serve(s.dev, s.listen, new(load.Counts), func(err error) { t.Error(err) })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// dial connects with a separate context.
func (s *site) dial(t *testing.T, address string) *load.Conn {
	t.Helper()
	return s.dialBy(t, address, load.Options{})
}

func (s *site) dialBy(t *testing.T, address string, o load.Options) *load.Conn {
	t.Helper()
	o.Counts, o.Seed = new(load.Counts), 7
	c, err := load.Dial(s.dev, address, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// works requires that a new connection to an address can execute every operation.
func (s *site) works(t *testing.T, address string) {
	t.Helper()
	c := s.dial(t, address)
	require.NoError(t, c.EachStep())
	require.NoError(t, c.Close())
}

// command runs a system command.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// undo runs a command when the test ends. It may fail if there is nothing left to undo.
func undo(t *testing.T, name string, args ...string) {
	t.Cleanup(func() { _ = exec.Command(name, args...).Run() })
}

// closes requires that a channel is closed, or delivers a value, soon.
func closes[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		require.FailNow(t, "timed out waiting for "+what)
	}
	panic("not reached")
}

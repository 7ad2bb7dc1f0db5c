// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func Example() {
	main()
	// Output:
	// /hello by HTTP/1.1
	// /again by HTTP/1.1
}

// limited returns a context for one test.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// protocols runs both sides on a device with each protocol.
func protocols(t *testing.T, device, listen string) {
	for h2c, want := range map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"} {
		var out bytes.Buffer
		dev, err := verbs.DeviceByName(device)
		require.NoError(t, err)
		require.NoError(t, network{device: dev, h2c: h2c}.both(limited(t), listen, &out))
		require.Equal(t, "/hello by "+want+"\n/again by "+want+"\n", out.String())
	}
}

func TestProtocols(t *testing.T) {
	protocols(t, "usiw0", "127.0.0.1:0")
	protocols(t, "usiw0-plain", "127.0.0.1:0") // without immediate data
}

func TestKernelDevices(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	rdmatest.KernelDevice(t, "siw0")
	protocols(t, "rxe0", "10.78.0.1:0")
	protocols(t, "siw0", "10.77.0.1:0")
}

// A client and a server that use different protocols fail with an error.
func TestOtherProtocol(t *testing.T) {
	dev, err := verbs.DeviceByName("usiw0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(limited(t))
	addresses, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- network{device: dev}.serveUntil(ctx, "127.0.0.1:0", func(address string) { addresses <- address })
	}()
	var out bytes.Buffer
	require.Error(t, network{device: dev, h2c: true}.get(ctx, "http://"+<-addresses+"/", &out))
	require.Empty(t, out.String())
	stop()
	require.NoError(t, <-served)
}

// No server listens there.
func TestRefused(t *testing.T) {
	dev, err := verbs.DeviceByName("usiw0")
	require.NoError(t, err)
	require.Error(t, network{device: dev}.get(limited(t), "http://127.0.0.1:1/", &bytes.Buffer{}))
}

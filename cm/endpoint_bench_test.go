// SPDX-License-Identifier: BSD-3-Clause

package cm_test

import (
	"context"
	"testing"

	"github.com/goverbs/goverbs/cm"
)

// BenchmarkEndpointPingPong measures half a round trip of a 64-byte message with Send and Recv on
// the user-space RNIC.
func BenchmarkEndpointPingPong(b *testing.B) {
	ctx := context.Background()
	a, p := endpoints(b, usiwDevice(b), cm.EndpointConfig{}, cm.EndpointConfig{})
	done := make(chan error, 1)
	go func() {
		buf := make([]byte, cm.DefaultMessageSize)
		for {
			wc, err := p.Recv(ctx, buf)
			if err == nil {
				err = p.Send(ctx, buf[:wc.ByteLen])
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	text, buf := make([]byte, 64), make([]byte, 64)
	for b.Loop() {
		if err := a.Send(ctx, text); err != nil {
			b.Fatal(err)
		}
		if _, err := a.Recv(ctx, buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/message")
	_ = a.Close()
	<-done
}

// BenchmarkEndpointStream measures one 64-byte message of a stream in one direction.
func BenchmarkEndpointStream(b *testing.B) {
	ctx := context.Background()
	a, p := endpoints(b, usiwDevice(b), cm.EndpointConfig{}, cm.EndpointConfig{})
	done := make(chan error, 1)
	go func() {
		for buf := make([]byte, 64); ; {
			if _, err := p.Recv(ctx, buf); err != nil {
				done <- err
				return
			}
		}
	}()
	text := make([]byte, 64)
	for b.Loop() {
		if err := a.Send(ctx, text); err != nil {
			b.Fatal(err)
		}
	}
	_ = a.Shutdown(ctx)
	<-done
}

// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

func Example() {
	main()
	// Output:
	// unary: hello
	// streaming: 1000 numbers
	// deadline: DeadlineExceeded
	// cancel: Canceled
}

// An RNIC without immediate data supports rsockets too.
func TestPlain(t *testing.T) {
	if err := run(t.Context(), "usiw0-plain", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
}

// A missing server is reported as unavailable, before the client's deadline.
func TestUnavailable(t *testing.T) {
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer nic.Close()
	conn, err := connect(nic.Device(), "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := say(ctx, conn, "hello"); status.Code(err) != codes.Unavailable {
		t.Fatal(err)
	}
}

// SPDX-License-Identifier: BSD-3-Clause

package goverbstest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/goverbstest"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// The program under test, which takes its device as an argument.

// echo answers the messages of one connection until the peer ends it.
func echo(ctx context.Context, ln *cm.Listener) error {
	ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{})
	if err != nil {
		return err
	}
	defer ep.Close()
	p := make([]byte, cm.DefaultMessageSize)
	for {
		wc, err := ep.Recv(ctx, p)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := ep.Send(ctx, p[:wc.ByteLen]); err != nil {
			return err
		}
	}
}

// call sends a text and returns the answer.
func call(ctx context.Context, address string, dev *verbs.Device, text string) (string, error) {
	ep, err := cm.Dial(ctx, address, cm.Config{Device: dev}, cm.EndpointConfig{})
	if err != nil {
		return "", err
	}
	defer ep.Close()
	if err := ep.Send(ctx, []byte(text)); err != nil {
		return "", err
	}
	p := make([]byte, cm.DefaultMessageSize)
	wc, err := ep.Recv(ctx, p)
	if err != nil {
		return "", err
	}
	return string(p[:wc.ByteLen]), nil
}

// Test a client and a server, once on a slow network and once with a connection that breaks.
func Example() {
	test := func(t testing.TB) {
		faults := func(l *usiwtest.Link) { l.Delay(time.Millisecond) }
		nw := goverbstest.New(t, goverbstest.Options{OnDial: func(l *usiwtest.Link) { faults(l) }})
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		ln, err := cm.Listen(ctx, "server:7306", cm.Config{Device: nw.Device(0)})
		if err != nil {
			t.Fatalf("listen: %v", err)
		}
		defer ln.Close()

		served := make(chan error)
		go func() { served <- echo(ctx, ln) }()
		answer, err := call(ctx, "server:7306", nw.Device(1), "hello")
		if err != nil || answer != "hello" {
			t.Errorf("answer %q, error %v", answer, err)
		}
		if err := <-served; err != nil {
			t.Errorf("server: %v", err)
		}

		faults = func(l *usiwtest.Link) { l.ToListener.CutAt(60) } // within the message
		go func() { served <- echo(ctx, ln) }()
		if _, err = call(ctx, "server:7306", nw.Device(1), "hello"); err == nil {
			t.Errorf("no error on a broken connection")
		}
		if err := <-served; err == nil {
			t.Errorf("no error of the server on a broken connection")
		}
	}
	runTest(test)
	// Output: PASS
}

// Create two connected endpoints in one call, one of which loses its peer.
func ExampleNetwork_Pair() {
	test := func(t testing.TB) {
		nw := goverbstest.New(t, goverbstest.Options{})
		client, server := nw.Pair(t, cm.EndpointConfig{}, cm.EndpointConfig{})
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := client.Send(ctx, []byte("hello")); err != nil {
			t.Fatalf("send: %v", err)
		}
		p := make([]byte, 100)
		wc, err := server.Recv(ctx, p)
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		fmt.Printf("%q\n", p[:wc.ByteLen])

		nw.Links()[0].Cut()
		_, err = server.Recv(ctx, p)
		fmt.Println(errors.Is(err, syscall.ECONNRESET))
	}
	runTest(test)
	// Output:
	// "hello"
	// true
	// PASS
}

// runTest does what package testing does with a test, and prints the first line of each error.
func runTest(test func(t testing.TB)) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	tr := &trial{dir: dir}
	tr.run(test)
	for _, e := range tr.errors {
		first, _, _ := strings.Cut(e, "\n")
		fmt.Println(first)
	}
	if tr.failed {
		fmt.Println("FAIL")
	} else {
		fmt.Println("PASS")
	}
}

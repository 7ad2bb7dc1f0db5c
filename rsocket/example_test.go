// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// The peer could also be a program in C.
func Example() {
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	cfg := rsocket.Config{Device: nic.Device()} // or a kernel device; without one the address decides

	ln, err := (&rsocket.ListenConfig{Config: cfg}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(conn, conn) // echo until the peer closes its direction
		_ = conn.Close()
	}()

	d := rsocket.Dialer{Config: cfg}
	conn, err := d.Dial("tcp", ln.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "hello")
	_ = conn.(*rsocket.Conn).CloseWrite()
	answer, err := io.ReadAll(conn)
	fmt.Println(string(answer), err)
	// Output: hello <nil>
}

// net/http over RDMA: a listener for the server, and DialContext for the client.
func ExampleDialer_DialContext() {
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	cfg := rsocket.Config{Device: nic.Device()}
	ln, err := (&rsocket.ListenConfig{Config: cfg}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "you asked for ", r.URL.Path)
	})}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()

	d := &rsocket.Dialer{Config: cfg}
	tr := &http.Transport{DialContext: d.DialContext}
	defer tr.CloseIdleConnections()
	res, err := (&http.Client{Transport: tr}).Get("http://" + ln.Addr().String() + "/goverbs")
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	fmt.Println(string(text), err)
	// Output: you asked for /goverbs <nil>
}

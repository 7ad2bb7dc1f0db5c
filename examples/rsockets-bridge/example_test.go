// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A client's text passes through two bridges: from a unix socket to an rsocket, and from there to
// the server's unix socket.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	client, server := filepath.Join(dir, "client"), filepath.Join(dir, "server")
	ln, err := net.Listen("unix", server)
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0") // a port for the rsocket
	if err != nil {
		log.Fatal(err)
	}
	rsocket := "rsocket://" + free.Addr().String()
	free.Close()

	ctx, stop := context.WithCancel(context.Background()) // as a signal does
	bridges := make(chan error, 2)
	bridge := func(args ...string) {
		cmd := newCommand(slog.New(slog.DiscardHandler))
		cmd.SetArgs(args)
		bridges <- cmd.ExecuteContext(ctx)
	}
	go bridge("--listen", rsocket, "--dial", "unix://"+server)
	go bridge("--listen", "unix://"+client, "--dial", rsocket, "--device", "usiw0-plain")

	go func() {
		for {
			c, err := net.Dial("unix", client)
			if err == nil {
				_, err = io.WriteString(c, "hello through RDMA")
				c.Close()
				if err == nil {
					return
				}
			}
			time.Sleep(10 * time.Millisecond) // until the bridges are listening
		}
	}()
	for {
		c, err := ln.Accept()
		if err != nil {
			log.Fatal(err)
		}
		text, _ := io.ReadAll(c)
		c.Close()
		if len(text) > 0 {
			fmt.Printf("%s\n", text)
			break
		}
	}
	stop()
	fmt.Println(<-bridges, <-bridges)
	// Output:
	// hello through RDMA
	// <nil> <nil>
}

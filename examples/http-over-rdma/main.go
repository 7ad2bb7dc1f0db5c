// SPDX-License-Identifier: BSD-3-Clause

// Command http-over-rdma runs HTTP/1.1 or HTTP/2 over RDMA with net/http: an rsocket is a net.Conn,
// so server and client are those of net/http, unchanged.
//
//	http-over-rdma [-device NAME] [-h2c] [-listen ADDR]
//	http-over-rdma [-device NAME] [-h2c] -serve ADDR
//	http-over-rdma [-device NAME] [-h2c] -get URL
//
// Without -serve and -get it runs both sides. It uses the user-space RNIC, or another device with
// one of that device's addresses. -h2c selects HTTP/2 without TLS; client and server must both use
// it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	_ "github.com/goverbs/goverbs/usiw" // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "usiw0", "use the device `NAME`")
	h2c := flag.Bool("h2c", false, "use HTTP/2")
	listen := flag.String("listen", "127.0.0.1:0", "as both sides: listen on `ADDR`, which the device must reach")
	serve := flag.String("serve", "", "serve at `ADDR` until SIGINT")
	get := flag.String("get", "", "get `URL`, and print the answer")
	flag.Parse()
	ctx, end := signal.NotifyContext(context.Background(), os.Interrupt)
	defer end()
	dev, err := verbs.DeviceByName(*device)
	if err == nil {
		n := network{device: dev, h2c: *h2c}
		switch {
		case *serve != "":
			err = n.serveUntil(ctx, *serve, func(address string) { log.Printf("serving at http://%s", address) })
		case *get != "":
			err = n.get(ctx, *get, os.Stdout)
		default:
			err = n.both(ctx, *listen, os.Stdout)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

// both runs a server and gets two pages from it.
func (n network) both(ctx context.Context, listen string, w io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	addresses, served := make(chan string, 1), make(chan error, 1)
	go func() { served <- n.serveUntil(ctx, listen, func(address string) { addresses <- address }) }()
	select {
	case err := <-served:
		return err
	case address := <-addresses:
		for _, page := range []string{"hello", "again"} {
			if err := n.get(ctx, fmt.Sprintf("http://%s/%s", address, page), w); err != nil {
				return err
			}
		}
	}
	stop()
	return <-served
}

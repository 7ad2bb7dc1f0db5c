// SPDX-License-Identifier: BSD-3-Clause

// Command rpc calls a server's procedures from several clients. The server uses one shared receive
// queue and one completion queue for all connections.
//
//	rpc [-device NAME] [-listen ADDR]
//
// It uses the user-space RNIC, or another device that has shared receive queues, with one of that
// device's addresses.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	_ "github.com/goverbs/goverbs/compat/ibcompat" // devices ib:NAME
	_ "github.com/goverbs/goverbs/usiw"            // devices usiw0 and usiw0-plain
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "usiw0", "use the device `NAME`")
	listen := flag.String("listen", "127.0.0.1:0", "listen on `ADDR`, which the device must reach")
	flag.Parse()
	if err := run(context.Background(), *device, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, device, listen string) error {
	dev, err := verbs.DeviceByName(device)
	if err != nil {
		return err
	}
	ln, err := cm.Listen(ctx, listen, cm.Config{Device: dev})
	if err != nil {
		return err
	}
	defer ln.Close()

	serverCtx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- serve(serverCtx, ln, upper) }()
	clients, clientCtx := errgroup.WithContext(ctx)
	for i := range 3 {
		clients.Go(func() error {
			c, err := dial(clientCtx, ln.Addr().String(), dev)
			if err != nil {
				return err
			}
			defer c.Close()
			for j := range 100 {
				text := fmt.Sprintf("request %d of client %d", j, i)
				answer, err := call(clientCtx, c, text)
				if err != nil {
					return err
				}
				if answer != strings.ToUpper(text) {
					return fmt.Errorf("%q was answered by %q", text, answer)
				}
			}
			return nil
		})
	}
	err = clients.Wait()
	stop()
	if servedErr := <-served; err == nil {
		err = servedErr
	}
	if err == nil {
		fmt.Println("300 calls answered")
	}
	return err
}

// upper is the procedure.
func upper(request []byte) []byte { return []byte(strings.ToUpper(string(request))) }

// dial connects a client.
func dial(ctx context.Context, address string, dev *verbs.Device) (*cm.Endpoint, error) {
	return cm.Dial(ctx, address, cm.Config{Device: dev},
		cm.EndpointConfig{Messages: 1, MessageSize: messageSize})
}

// call sends a request and returns the response.
func call(ctx context.Context, ep *cm.Endpoint, request string) (string, error) {
	if err := ep.Send(ctx, []byte(request)); err != nil {
		return "", err
	}
	p := make([]byte, messageSize)
	wc, err := ep.Recv(ctx, p)
	if err != nil {
		return "", err
	}
	return string(p[:wc.ByteLen]), nil
}

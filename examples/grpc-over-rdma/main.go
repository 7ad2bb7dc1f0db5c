// SPDX-License-Identifier: BSD-3-Clause

// Command grpc-over-rdma runs gRPC over RDMA: an rsocket is a net.Conn, so only the server's
// listener and the client's dialer differ. It connects to itself and makes four calls: a unary one,
// one with a stream of responses, one that its deadline ends, and one that is canceled.
//
//	grpc-over-rdma [-device NAME] [-listen ADDR]
//
// It uses the user-space RNIC, or another device with one of that device's addresses. The streams
// are neither encrypted nor authenticated, unless TLS credentials replace insecure.NewCredentials.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	_ "github.com/goverbs/goverbs/usiw" // devices usiw0 and usiw0-plain
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

func run(ctx context.Context, device, address string) error {
	dev, err := verbs.DeviceByName(device)
	if err != nil {
		return err
	}
	ln, err := listen(ctx, dev, address)
	if err != nil {
		return err
	}
	server, served := serve(ln)
	err = call(ctx, dev, ln.Addr().String())
	server.GracefulStop()
	return errors.Join(err, <-served)
}

// call runs the client.
func call(ctx context.Context, dev *verbs.Device, address string) error {
	conn, err := connect(dev, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, step := range []func(context.Context, *grpc.ClientConn) error{unary, streaming, deadline, cancelled} {
		if err := step(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

func unary(ctx context.Context, conn *grpc.ClientConn) error {
	text, err := say(ctx, conn, "hello")
	fmt.Println("unary:", text)
	return err
}

func streaming(ctx context.Context, conn *grpc.ClientConn) error {
	numbers := 0
	if err := countTo(ctx, conn, 1000, func(string) { numbers++ }); !errors.Is(err, io.EOF) {
		return err
	}
	fmt.Println("streaming:", numbers, "numbers")
	return nil
}

// deadline makes a call that only its deadline ends.
func deadline(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	return endsWith("deadline", codes.DeadlineExceeded, countTo(ctx, conn, math.MaxInt64, func(string) {}))
}

// cancelled makes an endless call and cancels it after some responses.
func cancelled(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return endsWith("cancel", codes.Canceled, countTo(ctx, conn, math.MaxInt64, func(number string) {
		if number == "100" {
			cancel()
		}
	}))
}

// endsWith requires that a call ended with the given code.
func endsWith(name string, want codes.Code, err error) error {
	if got := status.Code(err); got != want {
		return fmt.Errorf("%s: the call has ended with %v: %w", name, got, err)
	}
	fmt.Printf("%s: %v\n", name, want)
	return nil
}

// SPDX-License-Identifier: BSD-3-Clause

// Command grpc-over-rdma has gRPC use RDMA: an rsocket is a net.Conn, so the server gets a listener
// and the client a dialer, and nothing else differs. It connects to itself, makes a call, a call
// with a stream of answers, one that its deadline ends and one that is cancelled.
//
//	grpc-over-rdma [-device NAME] [-listen ADDR]
//
// It uses the user-space RNIC, or another device with an address of that device. The streams are
// neither encrypted nor authenticated; with credentials of TLS instead of insecure.NewCredentials
// they are.
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

// call is the client.
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

// deadline makes a call that never ends by itself.
func deadline(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	return endsWith("deadline", codes.DeadlineExceeded, countTo(ctx, conn, math.MaxInt64, func(string) {}))
}

// cancelled makes a call that never ends by itself, and cancels it after some answers.
func cancelled(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return endsWith("cancel", codes.Canceled, countTo(ctx, conn, math.MaxInt64, func(number string) {
		if number == "100" {
			cancel()
		}
	}))
}

// endsWith requires that a call has ended with a code.
func endsWith(name string, want codes.Code, err error) error {
	if got := status.Code(err); got != want {
		return fmt.Errorf("%s: the call has ended with %v: %w", name, got, err)
	}
	fmt.Printf("%s: %v\n", name, want)
	return nil
}

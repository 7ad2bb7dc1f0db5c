// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// listen listens for rsockets.
func listen(ctx context.Context, dev *verbs.Device, address string) (net.Listener, error) {
	lc := rsocket.ListenConfig{Config: rsocket.Config{Device: dev}}
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return ln, nil
}

// serve serves in the background. The caller must stop the server.
func serve(ln net.Listener) (server *grpc.Server, served <-chan error) {
	server = grpc.NewServer()
	server.RegisterService(&service, nil)
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	return server, done
}

// connect returns a client whose connections are rsockets. They are dialled on demand.
func connect(dev *verbs.Device, address string) (*grpc.ClientConn, error) {
	d := rsocket.Dialer{Config: rsocket.Config{Device: dev}}
	return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", address)
		}))
}

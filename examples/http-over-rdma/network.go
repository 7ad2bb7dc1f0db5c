// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbs"
)

// network is HTTP over rsockets.
type network struct {
	device *verbs.Device
	h2c    bool // HTTP/2 without TLS instead of HTTP/1.1
}

// protocols returns the protocols to configure in net/http.
func (n network) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!n.h2c)
	p.SetUnencryptedHTTP2(n.h2c)
	return p
}

// serveUntil serves until ctx is done, then shuts down gracefully. It calls ready with the address
// once it is listening.
func (n network) serveUntil(ctx context.Context, address string, ready func(address string)) error {
	lc := rsocket.ListenConfig{Config: rsocket.Config{Device: n.device}}
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(greet), Protocols: n.protocols(),
		ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		stopped <- server.Shutdown(limited)
	}()
	ready(ln.Addr().String())
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// greet is the handler.
func greet(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s by %s\n", r.URL.Path, r.Proto)
}

// get writes the response for a URL to w.
func (n network) get(ctx context.Context, url string, w io.Writer) error {
	d := rsocket.Dialer{Config: rsocket.Config{Device: n.device}}
	transport := &http.Transport{DialContext: d.DialContext, Protocols: n.protocols()}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	_, err = io.Copy(w, answer.Body)
	return err
}

// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/usiw"
)

// TestHTTP: net/http runs unchanged, with and without TLS, with several connections and bodies in
// both directions.
func TestHTTP(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{})}
	for _, c := range []struct {
		name  string
		start func(*httptest.Server)
	}{
		{"plain", (*httptest.Server).Start},
		{"TLS", (*httptest.Server).StartTLS},
		{"HTTP/2", func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln := listen(t, cfg, "127.0.0.1:0")
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}))
			_ = srv.Listener.Close()
			srv.Listener = ln
			c.start(srv)
			defer srv.Close()
			roots := x509.NewCertPool()
			if cert := srv.Certificate(); cert != nil {
				roots.AddCert(cert)
			}
			d := &rsocket.Dialer{Config: cfg}
			tr := &http.Transport{DialContext: d.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots},
				ForceAttemptHTTP2: srv.EnableHTTP2}
			defer tr.CloseIdleConnections()
			client := &http.Client{Transport: tr}
			body := make([]byte, 300_000)
			for i := range body {
				body[i] = byte(rand.Uint32())
			}
			var g errgroup.Group
			for range 3 {
				g.Go(func() error {
					for range 3 {
						req, err := http.NewRequestWithContext(within(t), http.MethodPost, srv.URL,
							bytes.NewReader(body))
						if err != nil {
							return err
						}
						res, err := client.Do(req)
						if err != nil {
							return err
						}
						got, err := io.ReadAll(res.Body)
						_ = res.Body.Close()
						if err != nil {
							return err
						}
						if !bytes.Equal(got, body) {
							t.Errorf("%d bytes came back, not the %d that were sent", len(got), len(body))
						}
						if want := srv.EnableHTTP2; (res.ProtoMajor == 2) != want {
							t.Errorf("protocol %s", res.Proto)
						}
					}
					return nil
				})
			}
			require.NoError(t, g.Wait())
		})
	}
}

// TestHTTPHalfClosed: clients that close their direction after the request get the whole response,
// while others close in the middle of it, or abort the connection.
func TestHTTPHalfClosed(t *testing.T) {
	cfg := rsocket.Config{Device: usiwDevice(t, usiw.Config{})}
	ln := listen(t, cfg, "127.0.0.1:0")
	answer := text(300_000)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) != 100_000 {
			http.Error(w, "the request is not whole", http.StatusBadRequest)
			return
		}
		_, _ = w.Write(answer)
	}))
	_ = srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	defer srv.Close()
	ask := func() (*rsocket.Conn, error) {
		d := &rsocket.Dialer{Config: cfg}
		nc, err := d.DialContext(within(t), "tcp", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		c := nc.(*rsocket.Conn)
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n%s", make([]byte, 100_000))
		return c, errors.Join(err, c.SetDeadline(time.Now().Add(30*time.Second)))
	}
	var g errgroup.Group
	for i := range 30 {
		g.Go(func() error {
			c, err := ask()
			if err != nil {
				return err
			}
			if i%3 > 0 {
				if _, err := io.CopyN(io.Discard, c, 1000); err != nil {
					return err
				}
				if i%3 == 2 {
					_ = c.SetLinger(0)
				}
				return c.Close()
			}
			if err := c.CloseWrite(); err != nil {
				return err
			}
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return err
			}
			got, err := io.ReadAll(res.Body)
			if err == nil && (res.StatusCode != http.StatusOK || !bytes.Equal(got, answer)) {
				err = fmt.Errorf("%s, %d bytes", res.Status, len(got))
			}
			return errors.Join(err, c.Close())
		})
	}
	require.NoError(t, g.Wait())
}

// SPDX-License-Identifier: BSD-3-Clause

package rsocket_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/siw"
)

// TestHTTP: net/http, over TLS and without, runs unchanged, with several connections and bodies in both directions.
func TestHTTP(t *testing.T) {
	cfg := rsocket.Config{Device: usiw(t, siw.Config{})}
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
			tr := &http.Transport{DialContext: d.DialContext, TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: srv.EnableHTTP2}
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
						req, err := http.NewRequestWithContext(within(t), http.MethodPost, srv.URL, bytes.NewReader(body))
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

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package programs

import (
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// TestKept runs programs with goverbs run --keep-real in the guest: they see the RNIC and the
// kernel devices, and use each of them. librdmacm connections use the RNIC.
func TestKept(t *testing.T) {
	wanted(t)
	rdmatest.KernelDevice(t, "rxe0")
	goverbs := user(t).prefix[:2]
	on := func(device string, flags ...string) side {
		prefix := append([]string{goverbs[0], goverbs[1], "--keep-real"}, flags...)
		return side{prefix: append(prefix, "--"), device: device}
	}
	list := append(on("").prefix, "ibv_devices")
	out, err := exec.Command(list[0], list[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?s)\busiw0\b.*\b(rxe|siw)0\b.*\b(rxe|siw)0\b`, string(out))

	p := place{kind: "kept", addr6: "::1", slow: guestSlow}
	for name, c := range map[string]struct {
		side   side
		addr   string
		server []string // the client also gets the address
		prints string
	}{
		"rxe0": {on("rxe0"), "10.78.0.1",
			[]string{"ibv_rc_pingpong", "-d", "{device}", "-g", "1", "-e", "-c", "-n", "100", "-p", "{port}"},
			"100 iters in"},
		"usiw0": {on("ib:usiw0", "--device", "ib:usiw0"), "10.77.0.1",
			[]string{"ibv_rc_pingpong", "-d", "{device}", "-g", "0", "-e", "-c", "-n", "100", "-p", "{port}"},
			"100 iters in"}, "rxe0 UD": {on("rxe0"), "10.78.0.1",
			[]string{"ibv_ud_pingpong", "-d", "{device}", "-g", "1", "-e", "-n", "100", "-p", "{port}"},
			"100 iters in"},
		"librdmacm": {on("usiw0"), "10.78.0.1",
			[]string{"ib_send_lat", "-F", "-R", "-d", "{device}", "-n", "100", "-p", "{port}"}, "usiw0"},
	} {
		t.Run(name, func(t *testing.T) {
			p.server, p.client, p.addr = c.side, c.side, c.addr
			r := p.once(t, &pair{server: c.server, client: append(c.server[:len(c.server):len(c.server)], "{addr}"),
				limit: defaultLimit, prints: map[string][]*regexp.Regexp{"client": {regexp.MustCompile(c.prints)}}})
			require.NoError(t, r.err, "%v", r)
		})
	}
}

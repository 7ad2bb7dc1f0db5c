// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// nasty would change a terminal's title, erase its screen, and fake output.
const nasty = "\x1b]0;title\a\x1b[2J\r\u009b1m\u202e\xff"

// nastyDevice has the text wherever a device can.
type nastyDevice struct{}

func (nastyDevice) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: "nasty" + nasty, Provider: nasty, Transport: verbs.TransportIB}
}
func (nastyDevice) Open(*verbs.Context) (verbs.ProviderContext, error) { return nil, errors.New(nasty) }

// nastyPeer listens on its own NIC, and rejects every connection with the text.
func nastyPeer(t *testing.T) (address string) {
	t.Helper()
	nic, err := usiw.New(usiw.Config{Name: "peer0"})
	require.NoError(t, err)
	ln, err := cm.Listen(t.Context(), "127.0.0.1:0", cm.Config{Device: nic.Device()})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r, err := ln.Accept(context.WithoutCancel(t.Context()))
			if err != nil {
				return
			}
			_ = r.Reject([]byte(nasty))
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		<-done
		require.NoError(t, nic.Close())
	})
	return ln.Addr().String()
}

// TestNastyTexts: no command lets text from a device, a peer or its own command line control the
// terminal.
func TestNastyTexts(t *testing.T) {
	name := nastyDevice{}.Info().Name
	d, err := verbs.Register(nastyDevice{})
	require.NoError(t, err)
	defer verbs.Unregister(d)
	peer := nastyPeer(t)
	host, port, ok := strings.Cut(peer, ":")
	require.True(t, ok)
	tried := map[string]bool{}
	for _, c := range []struct {
		args  string // separated by blanks; DEVICE and PEER are replaced
		shown bool   // the text is in the output
	}{
		{"DEVICE", true}, {"--DEVICE", true},
		{"devices", true}, {"devices -v", true}, {"devices --json", true}, {"devices --device DEVICE", true},
		{"devices --device DEVICE -v", true}, {"devices --device ib:DEVICE", true}, {"devices --device xDEVICE", true},
		{"demo --device DEVICE", true}, {"demo --device DEVICE --json", true}, {"demo --connect PEER", true},
		{"demo --connect PEER --json", true}, {"demo --break DEVICE", true}, {"demo --listen DEVICE", true},
		{"demo --pcap /no/DEVICE", true}, {"rping -c -a HOST -p PORT -C 1", false},
		{"rping -s -a 127.0.0.1 -p 0 --device DEVICE", true}, {"rping -c -a DEVICE", true},
		{"fabrics --columns DEVICE,usiw0", true}, {"fabrics --only DEVICE", true}, {"run --device DEVICE true", true},
		{"run -- /no/DEVICE", false}, {"version", false}, {"version DEVICE", true}, {"completion bash", false},
		{"completion fish", false}, {"completion zsh", false}, {"completion DEVICE", true}, {"help DEVICE", false},
		{"help demo", false},
	} {
		args := strings.Fields(c.args)
		tried[args[0]] = true
		for i := range args {
			args[i] = strings.NewReplacer("DEVICE", name, "PEER", peer, "HOST", host, "PORT", port).Replace(args[i])
		}
		r := execute(t, args...)
		for _, out := range []string{r.stdout, r.stderr} {
			require.True(t, utf8.ValidString(out), "%q: %q", args, out)
			require.False(t, strings.ContainsFunc(out,
				func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }), "%q: %q", args, out)
		}
		if c.shown {
			require.Regexp(t, `\\(u001b|x1b|\\u001b)`, r.stdout+r.stderr, "%q", args)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^  (\w+) +[A-Z]`).FindAllStringSubmatch(execute(t, "--help").stdout, -1) {
		require.True(t, tried[m[1]], "command %s", m[1])
	}
}

// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/verbs"
)

// asPeer is the variable that makes the test binary a program that connects and then waits to be
// killed: "DEVICE ADDRESS QUALIFIER".
const asPeer = "GOVERBS_TEST_DAT_PEER"

// peer runs that program. It returns if it could not connect.
func peer(where string) error {
	words := strings.Fields(where)
	addr, err := netip.ParseAddr(words[1])
	if err != nil {
		return err
	}
	qual, err := strconv.ParseUint(words[2], 10, 16)
	if err != nil {
		return err
	}
	ia, err := dat.Open(words[0], dat.Config{})
	if err != nil {
		return err
	}
	pz, err := ia.CreatePZ()
	if err != nil {
		return err
	}
	evd, err := ia.CreateEVD(64, dat.EVDDTO|dat.EVDConnection)
	if err != nil {
		return err
	}
	ep, err := ia.CreateEP(pz, evd, evd, evd, dat.EPAttr{})
	if err != nil {
		return err
	}
	if err := ep.Connect(addr, qual, patience, nil); err != nil {
		return err
	}
	for {
		ev, _, err := evd.Wait(context.Background(), 2*patience, 1)
		if err != nil || ev.Number != dat.ConnectionEstablished {
			return fmt.Errorf("%v %w", ev.Number, err)
		}
	}
}

// TestPeerKilled: the peer is killed while a message waits for a receive. Each outstanding DTO has
// its event, the connection ends, and the EP can connect again.
func TestPeerKilled(t *testing.T) {
	everywhere(t, func(t *testing.T, dev *verbs.Device, addr netip.Addr) {
		a, b := newSide(t, dev, addr, options{}), newSide(t, dev, addr, options{})
		psp, qual := b.listen()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %v %d", asPeer, dev.Name(), addr, qual))
		out := new(strings.Builder)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
		require.NoError(t, cmd.Start())
		killed := false
		kill := func() {
			if !killed {
				killed = true
				require.NoError(t, cmd.Process.Kill())
				require.Error(t, cmd.Wait())
				require.Empty(t, out.String())
			}
		}
		defer kill()
		require.NoError(t, wait(t, b.conn, dat.ConnectionRequestEvent).CR.CR.Accept(b.ep, nil))
		wait(t, b.conn, dat.ConnectionEstablished)
		require.NoError(t, b.ep.PostRecv(nil, 1, 0))
		require.NoError(t, b.ep.PostSend(b.segment(0, 8), 2, 0))
		require.NoError(t, b.ep.PostSend(b.segment(0, 8), 3, 0))
		kill()
		ev, _, err := b.conn.Wait(t.Context(), 2*patience, 1)
		require.NoError(t, err)
		require.Contains(t, []dat.EventNumber{dat.ConnectionBroken, dat.ConnectionDisconnected}, ev.Number)
		require.NotEqual(t, dat.DTOSuccess, dto(t, b.recv, 1).Status)
		require.NotEqual(t, dat.DTOSuccess, dto(t, b.requests, 2).Status)
		require.Equal(t, dat.DTOErrFlushed, dto(t, b.requests, 3).Status)
		require.Equal(t, dat.EPDisconnected, b.ep.State())
		require.NoError(t, psp.Free())

		require.NoError(t, b.ep.Reset())
		connect(t, addr, a, b)
		require.NoError(t, a.ep.PostRecv(nil, 4, 0))
		require.NoError(t, b.ep.PostSend(nil, 5, 0))
		require.Equal(t, dat.DTOSuccess, dto(t, a.recv, 4).Status)
		require.Equal(t, dat.DTOSuccess, dto(t, b.requests, 5).Status)
	})
}

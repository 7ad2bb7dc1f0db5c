// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// TestPrintKernel: objects that only kernel devices have can be printed while they are closed, and
// so can QPs, changing regions, and their connection.
func TestPrintKernel(t *testing.T) {
	b := newBench(t, "fake0", "192.0.2.1", cm.Config{})
	active, passive := b.pair(cm.ConnParam{PrivateData: []byte(secret)})
	require.Contains(t, active.QP().String(), "state=RTS")
	qp := b.qp(verbs.QPTypeUD)
	ah, err := qp.PD().CreateAH(verbs.AHAttr{PortNum: 1, IsGlobal: true})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("AH(device=%s state=open port_num=1 dgid=%v sgid_index=0 dlid=0)", b.dev.Name(),
		verbs.GID{}), ah.String())
	mr, err := qp.PD().RegMR([]byte(secret), verbs.AccessLocalWrite)
	require.NoError(t, err)
	id := b.resolve(cm.Config{Context: b.vctx, PortSpace: cm.PortSpaceUDP})
	m, err := id.JoinMulticast(soon(t), qp, netip.MustParseAddr("239.1.2.3"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("Multicast(device=%s state=member group=239.1.2.3 qp_num=%d mlid=%#x)", b.dev.Name(),
		qp.Num(), m.AH.DLID), m.String())
	all := []any{ah, mr, m, id, active, passive, qp, active.QP(), b.vctx, b.dev, b.ln, m.Datagram, verbs.UDDest{AH: ah},
		verbs.SendWR{UD: &verbs.UDDest{AH: ah}}}

	stop := make(chan struct{})
	var printing sync.WaitGroup
	rounds := make(chan struct{}, 100)
	for range 2 {
		printing.Go(func() {
			for done := false; !done; {
				select {
				case <-stop:
					done = true
				default:
				}
				for _, v := range all {
					requireNoSecret(t, printed(t, v))
				}
				select {
				case rounds <- struct{}{}:
				default:
				}
			}
		})
	}
	for n, got := 0, 0; got < 4; n++ {
		select {
		case <-rounds:
			got++
		default:
		}
		err := mr.Rereg(verbs.ReregTranslation|verbs.ReregAccess, nil, make([]byte, 64+n%64), verbs.AccessLocalWrite)
		require.NoError(t, err)
		require.Contains(t, mr.String(), fmt.Sprintf("length=%d ", 64+n%64))
	}
	require.NoError(t, m.Leave())
	require.NoError(t, ah.Close())
	require.NoError(t, mr.Close())
	require.NoError(t, active.Disconnect())
	<-passive.Done()
	require.NoError(t, active.Close())
	close(stop)
	printing.Wait()
	require.Contains(t, m.String(), "state=left")
	require.Contains(t, ah.String(), "state=closed")
	require.Contains(t, mr.String(), "state=closed")
	require.Contains(t, active.String(), "state=closed")
	require.Contains(t, passive.String(), "state=ended")
}

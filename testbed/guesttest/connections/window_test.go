// SPDX-License-Identifier: BSD-3-Clause

package connections

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// TestKernelWindowOfClosedQP: rxe waits 50 s for a QP on which a type 2 window is bound. A QP is
// closed without that delay, the region of the window can be closed, and the window can be bound
// again.
func TestKernelWindowOfClosedQP(t *testing.T) {
	dev := device(t, "rxe0")
	ln, err := cm.Listen(soon(t), net.JoinHostPort("10.78.0.1", "0"), cm.Config{Device: dev})
	require.NoError(t, err)
	defer func() { require.NoError(t, ln.Close()) }()
	var pd *verbs.PD
	var mw *verbs.MW
	for range 3 {
		id, err := cm.Resolve(soon(t), ln.Addr().String(), cm.Config{Device: dev})
		require.NoError(t, err)
		a := newHalf(t, id.Context(), 0)
		if mw == nil {
			pd = a.pd
			mw, err = pd.AllocMW(verbs.MWType2)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, mw.Close()) })
		}
		b := newHalf(t, id.Context(), 0)
		require.NoError(t, b.qp.Close()) // for one in the window's PD
		b.qp, err = pd.CreateQP(verbs.QPConfig{SendCQ: b.cq, RecvCQ: b.cq})
		require.NoError(t, err)
		accepted := b.accept(ln, 2, "")
		require.NoError(t, id.Connect(soon(t), a.qp, cm.ConnParam{}))
		require.NoError(t, <-accepted)
		mr, err := pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessMWBind)
		require.NoError(t, err)
		copy(mr.Bytes(), "the memory")
		_, err = b.qp.PostSend([]verbs.SendWR{{ID: 9, Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled,
			RKey: mw.NextRKey(), Bind: &verbs.MWBind{MW: mw, MR: mr, Addr: mr.Addr(), Length: 10,
				Access: verbs.AccessRemoteRead}}})
		require.NoError(t, err)
		require.Equal(t, verbs.WCSuccess, b.next().Status)
		_, err = a.qp.PostSend([]verbs.SendWR{{Opcode: verbs.WRRDMARead, Flags: verbs.SendSignaled,
			RemoteAddr: mr.Addr(), RKey: mw.RKey(),
			SGL: []verbs.SGE{{Addr: a.mr.Addr(), Length: 10, LKey: a.mr.LKey()}}}})
		require.NoError(t, err)
		require.Equal(t, verbs.WCSuccess, a.next().Status)
		require.Equal(t, "the memory", string(a.mr.Bytes()[:10]))

		require.NoError(t, id.Close())
		require.NoError(t, b.id.Close())
		require.ErrorIs(t, mr.Close(), verbs.ErrBusy)
		began := time.Now()
		require.NoError(t, b.qp.Close())
		require.Less(t, time.Since(began), 30*time.Second)
		require.NoError(t, mr.Close())
	}
}

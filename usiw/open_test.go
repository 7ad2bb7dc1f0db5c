// SPDX-License-Identifier: BSD-3-Clause

package usiw_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestOpenRange: a range opened without a request behaves like a type 2 window: it covers its
// bytes, for its QP, until it is shut.
func TestOpenRange(t *testing.T) {
	n := newRawNIC(t, usiw.Config{MaxMW: 1})
	e, p := n.passive(rawOpts{})
	o, err := verbs.Own[verbs.ProviderOpener](e.qp.PD().Context().Provider())
	require.NoError(t, err)
	qp := e.qp.Provider()
	mr := e.mr(64, 0x700, verbs.AccessLocalWrite)
	s := verbs.SGE{Addr: mr.Addr() + 8, Length: 16, LKey: mr.LKey()}
	for name, bad := range map[string]verbs.SGE{"empty": {Addr: s.Addr, LKey: s.LKey},
		"key": {Addr: s.Addr, Length: 1, LKey: s.LKey + 256}, "bounds": {Addr: s.Addr, Length: 57, LKey: s.LKey},
		"right": {Addr: s.Addr, Length: 16, LKey: e.mr(64, 0x700, 0).LKey()}} {
		_, err := o.OpenRange(qp, bad)
		require.Error(t, err, name)
	}
	key, err := o.OpenRange(qp, s)
	require.NoError(t, err)
	_, err = o.OpenRange(qp, s)
	requireLimit(t, err, "max_mw", 1, 2)
	_, err = o.OpenRange(qp, verbs.SGE{Addr: s.Addr, Length: 1, LKey: key})
	var access *verbs.AccessError
	require.ErrorAs(t, err, &access)
	require.Equal(t, verbs.AccessMissingRight, access.Fault) // it grants no access by itself
	p.send(rawTagged(rdmap.OpWrite, key, s.Addr+12, []byte("good")))
	p.send(rawRead(1, rdmap.ReadRequest{SinkSTag: 7, Size: 0}))
	p.read() // the response follows the Write
	require.Equal(t, "good", string(mr.Bytes()[20:24]))
	o.ShutRange(key)
	again, err := o.OpenRange(qp, s)
	require.NoError(t, err)
	require.NotEqual(t, key, again)
	defer o.ShutRange(again)
	p.send(rawTagged(rdmap.OpWrite, key, s.Addr, []byte("late")))
	e.ended(terminated(1, 1, 0, false))
	require.Equal(t, bytes.Repeat([]byte{0xa5}, 20), mr.Bytes()[:20], "as before")

	without := newRawNIC(t, usiw.Config{Without: verbs.MakeOpSet(verbs.OpBindMW)})
	e, _ = without.passive(rawOpts{})
	o, err = verbs.Own[verbs.ProviderOpener](e.qp.PD().Context().Provider())
	require.NoError(t, err)
	mr = e.mr(64, 0x700, verbs.AccessLocalWrite)
	_, err = o.OpenRange(e.qp.Provider(), verbs.SGE{Addr: mr.Addr(), Length: 16, LKey: mr.LKey()})
	require.ErrorIs(t, err, verbs.ErrNotSupported)
}

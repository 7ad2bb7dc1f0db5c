// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/rdmatest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestMain(m *testing.M) { rdmatest.Main(m) }

// serve creates a NIC with a node on it.
func serve(t *testing.T) (*verbs.Device, *Node, *Counts) {
	t.Helper()
	nic, err := usiw.New(usiw.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, nic.Close()) })
	counts := new(Counts)
	n, err := Serve(nic.Device(), "127.0.0.1:0", counts, func(err error) { t.Error(err) })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return nic.Device(), n, counts
}

func TestEverything(t *testing.T) {
	dev, n, counts := serve(t)
	for way := range len(Ends()) {
		for _, wish := range []Wish{0, WishSRQ} {
			c, err := Dial(dev, n.Addr(), Options{Wish: wish, Seed: uint64(way), Counts: counts})
			require.NoError(t, err)
			require.NoError(t, c.EachStep())
			for range 20 {
				require.NoError(t, c.Step())
			}
			require.NoError(t, c.End(way))
			require.NoError(t, c.Close())
		}
	}
	for _, name := range Steps() {
		require.GreaterOrEqual(t, counts.Get(name), 2*len(Ends()), name)
	}
	for _, name := range Ends() {
		require.Equal(t, 2, counts.Get("end: "+name), name)
	}
	require.Equal(t, 2, counts.Get("cut by the server"))
	require.Equal(t, 1, counts.Get("srq"), "%v", counts)
}

func TestRefused(t *testing.T) {
	dev, n, counts := serve(t)
	_, err := Dial(dev, n.Addr(), Options{Wish: WishRefuse, Counts: counts})
	require.ErrorIs(t, err, cm.ErrRejected)
	require.False(t, Wrong(err))
	var re *cm.RejectedError
	require.True(t, errors.As(err, &re))
	require.Equal(t, refusalMsg, string(re.PrivateData))
}

// TestFindsWrongBytes: wrong data is detected.
func TestFindsWrongBytes(t *testing.T) {
	dev, n, counts := serve(t)
	c, err := Dial(dev, n.Addr(), Options{Counts: counts})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, c.list())
	c.shadow[wordLen+4095] ^= 1
	for wrong := error(nil); wrong == nil; {
		wrong = c.list()
		if wrong != nil {
			require.True(t, Wrong(wrong), "%v", wrong)
		}
	}
	c.word++
	require.True(t, Wrong(c.fetchAdd()))
	require.False(t, Wrong(verbs.WCWRFlushErr))
}

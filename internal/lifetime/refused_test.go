// SPDX-License-Identifier: BSD-3-Clause

package lifetime

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func nothing() error { return nil }

// end closes a Node that has no children.
func end(t *testing.T, n *Node) {
	t.Helper()
	first, err := n.BeginClose()
	require.NoError(t, err)
	require.True(t, first)
	n.End()
}

// TestRefusedInit checks that a Node refused by one of its parents is no child of the others, is
// not listed, and can be set up again.
func TestRefusedInit(t *testing.T) {
	before := len(Live())
	var open, gone, child Node
	require.NoError(t, open.Init("CQ", nothing))
	require.NoError(t, gone.Init("PD", nothing))
	end(t, &gone)

	require.ErrorIs(t, child.Init("QP", nothing, &open, &gone), ErrClosed)
	require.Len(t, Live(), before+1)
	require.NoError(t, open.CloseChildren(), "it has none")
	require.NoError(t, child.Init("QP", nothing, nil, &open, &open), "again, and below the same parent once")
	_, err := open.BeginClose()
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "by 1 QP")
	end(t, &child)
	require.False(t, child.Enter(), "a closed Node takes no calls")
	require.ErrorIs(t, child.Init("QP", nothing, &open, &gone), ErrClosed)
	end(t, &open)
	require.Len(t, Live(), before)
}

// TestCloseChildrenAgain checks that children that are busy until others are closed are all closed,
// whichever comes first, and that one that stays busy is reported.
func TestCloseChildrenAgain(t *testing.T) {
	var parent Node
	var children [3]Node
	var tries [len(children)]int
	others := func(i int) bool {
		for j := range tries {
			if j != i && tries[j] == 0 {
				return false
			}
		}
		return true
	}
	require.NoError(t, parent.Init("PD", nothing))
	for i := range children {
		n := &children[i]
		require.NoError(t, n.Init("MR", func() error {
			tries[i]++
			if !others(i) {
				return ErrBusy
			}
			if first, err := n.BeginClose(); err != nil || !first {
				return err
			}
			n.End()
			return nil
		}, &parent))
	}
	require.NoError(t, parent.CloseChildren())
	require.ElementsMatch(t, []int{2, 2, 1}, tries[:], "the last one finds that all others have been tried")

	var busy, broken Node
	failure := errors.New("no device")
	require.NoError(t, busy.Init("MR", func() error { return ErrBusy }, &parent))
	require.NoError(t, broken.Init("MW", func() error { return failure }, &parent))
	err := parent.CloseChildren()
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorIs(t, err, failure)
	end(t, &busy)
	end(t, &broken)
	end(t, &parent)
}

// TestCensus checks that the children that keep a parent from being closed are counted by kind, in
// order.
func TestCensus(t *testing.T) {
	var parent Node
	require.NoError(t, parent.Init("context", nothing))
	children := make([]Node, 6)
	for i := range children {
		require.NoError(t, children[i].Init([]string{"PD", "AH", "CQ"}[i%3], nothing, &parent))
	}
	for range 20 {
		_, err := parent.BeginClose()
		require.ErrorContains(t, err, "by 2 AH, 2 CQ, 2 PD")
	}
	for i := range children {
		end(t, &children[i])
	}
	end(t, &parent)
}

// TestLeaveForgets checks that a Node does not refer to parents that it has left, however often it
// changes them.
func TestLeaveForgets(t *testing.T) {
	var a, b, child Node
	require.NoError(t, a.Init("PD", nothing))
	require.NoError(t, b.Init("PD", nothing))
	require.NoError(t, child.Init("MR", nothing, &a))
	for range 4 {
		require.NoError(t, child.Adopt(&b))
		child.Leave(&a)
		require.Equal(t, []*Node{&b}, child.parents)
		require.NoError(t, child.Adopt(&a))
		child.Leave(&b)
		require.Equal(t, []*Node{&a}, child.parents)
	}
	end(t, &child)
	end(t, &a)
	end(t, &b)
}

// TestDescribe checks that a Node reports its kind and every call of the stack that created it.
func TestDescribe(t *testing.T) {
	var n Node
	require.NoError(t, n.Init("QP", nothing))
	for _, part := range []string{"QP created at\n", "lifetime.TestDescribe\n", "refused_test.go:",
		"testing.tRunner\n"} {
		require.Contains(t, n.Describe(), part)
	}
	end(t, &n)
}

// TestKeep checks that an object that lives as long as the process is not listed, but is a parent
// like any other.
func TestKeep(t *testing.T) {
	before := len(Live())
	var kept, child Node
	require.NoError(t, kept.Init("Device", nothing))
	kept.Keep()
	require.Len(t, Live(), before)
	require.NoError(t, child.Init("context", nothing, &kept))
	_, err := kept.BeginClose()
	require.ErrorIs(t, err, ErrBusy)
	end(t, &child)
	end(t, &kept)
	require.Len(t, Live(), before)
}

// SPDX-License-Identifier: BSD-3-Clause

package lifetime

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/asleep"
)

func TestGuardDrainWaitsForCalls(t *testing.T) {
	var g Guard
	require.True(t, g.Enter())
	require.True(t, g.Shut())
	require.False(t, g.Shut(), "the second Shut is not the first")
	require.False(t, g.Enter())
	require.False(t, g.Drain(10*time.Millisecond), "a call is in progress")
	drained := make(chan bool)
	go func() { drained <- g.Drain(0) }()
	asleep.Until(t, 1, "lifetime.(*Guard).Drain", "lifetime.TestGuardDrainWaitsForCalls")
	g.Exit()
	require.True(t, <-drained)
	require.True(t, g.Closed())
}

func TestGuardConcurrent(t *testing.T) {
	var g Guard
	var inside atomic.Int64
	var wg, begun sync.WaitGroup
	for range 8 {
		begun.Add(1)
		wg.Go(func() {
			first := sync.OnceFunc(begun.Done)
			for g.Enter() {
				inside.Add(1)
				first()
				inside.Add(-1)
				g.Exit()
			}
		})
	}
	begun.Wait()
	g.Shut()
	require.True(t, g.Drain(time.Second))
	require.Zero(t, inside.Load())
	wg.Wait()
}

func TestGuardAllocatesNothing(t *testing.T) {
	var g Guard
	require.Zero(t, testing.AllocsPerRun(100, func() { g.Enter(); g.Exit() }))
}

func TestNodeTree(t *testing.T) {
	before := len(Live())
	var parent, child, late Node
	nop := func() error { return nil }
	require.NoError(t, parent.Init("PD", nop))
	require.NoError(t, child.Init("MR", nop, &parent, &parent))
	require.Len(t, Live(), before+2)
	require.Contains(t, child.Describe(), "TestNodeTree")

	_, err := parent.BeginClose()
	require.ErrorIs(t, err, ErrBusy)
	require.ErrorContains(t, err, "1 MR")
	require.True(t, parent.Enter(), "a refused close leaves the parent open")
	parent.Exit()

	first, err := child.BeginClose()
	require.True(t, first)
	require.NoError(t, err)
	first, err = child.BeginClose()
	require.False(t, first, "idempotent")
	require.NoError(t, err)
	child.End()

	first, err = parent.BeginClose()
	require.True(t, first)
	require.NoError(t, err)
	parent.End()
	require.ErrorIs(t, late.Init("MR", nop, &parent), ErrClosed)
	require.Len(t, Live(), before)
}

func TestCloseChildren(t *testing.T) {
	var order []string
	mk := func(name string, n *Node, parents ...*Node) {
		require.NoError(t, n.Init(name, func() error {
			if first, err := n.BeginClose(); err != nil || !first {
				return err
			}
			n.End()
			order = append(order, name)
			return nil
		}, parents...))
	}
	var ctx, pd, cq, qp Node
	mk("context", &ctx)
	mk("PD", &pd, &ctx)
	mk("CQ", &cq, &ctx)
	mk("QP", &qp, &pd, &cq)
	require.NoError(t, ctx.CloseChildren())
	require.Len(t, order, 3)
	require.Equal(t, "QP", order[0], "children before parents")
	first, err := ctx.BeginClose()
	require.True(t, first)
	require.NoError(t, err)
	ctx.End()
}

func TestErrClosedIsEveryonesErrClosed(t *testing.T) {
	require.ErrorIs(t, ErrClosed, net.ErrClosed)
	require.ErrorIs(t, ErrClosed, os.ErrClosed)
	require.NotErrorIs(t, ErrClosed, os.ErrExist)
}

func TestNodeChangesParents(t *testing.T) {
	var from, to, gone, child Node
	nop := func() error { return nil }
	for _, n := range []*Node{&from, &to, &gone} {
		require.NoError(t, n.Init("PD", nop))
	}
	require.NoError(t, child.Init("MR", nop, &from))
	end := func(n *Node) {
		first, err := n.BeginClose()
		require.NoError(t, err)
		require.True(t, first)
		n.End()
	}
	end(&gone)
	require.ErrorIs(t, child.Adopt(&gone), ErrClosed)

	require.NoError(t, child.Adopt(&to))
	for _, n := range []*Node{&from, &to} {
		_, err := n.BeginClose()
		require.ErrorIs(t, err, ErrBusy, "both are parents")
	}
	child.Leave(&from)
	end(&from)
	_, err := to.BeginClose()
	require.ErrorIs(t, err, ErrBusy)
	end(&child)
	end(&to)
}

func TestLiveOf(t *testing.T) {
	nop := func() error { return nil }
	one, two := new(int), new(int)
	require.Empty(t, LiveOf(one))
	var root, child, grandchild, other, nobodys Node
	root.SetOwner(one)
	other.SetOwner(two)
	require.NoError(t, root.Init("Context", root.endForTest))
	require.NoError(t, other.Init("Context", other.endForTest))
	require.NoError(t, nobodys.Init("Context", nop))
	require.NoError(t, child.Init("PD", child.endForTest, nil, &root))
	require.NoError(t, grandchild.Init("QP", grandchild.endForTest, &child, &other))
	require.ElementsMatch(t, []*Node{&root, &child, &grandchild}, LiveOf(one),
		"a node has the owner of its first parent")
	require.ElementsMatch(t, []*Node{&other}, LiveOf(two))

	require.NoError(t, other.CloseTree())
	require.ElementsMatch(t, []*Node{&root, &child}, LiveOf(one), "and is closed with either")
	require.NoError(t, root.CloseTree())
	require.Empty(t, LiveOf(one))
	require.Empty(t, LiveOf(two))
	require.NoError(t, nobodys.endForTest())
}

// endForTest closes a node as a handle's Close does.
func (n *Node) endForTest() error {
	if first, err := n.BeginClose(); !first || err != nil {
		return err
	}
	n.End()
	return nil
}

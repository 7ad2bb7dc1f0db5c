// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/fakeverbs"
	"github.com/goverbs/goverbs/verbs"
)

// TestMovedAfterTheEnd: a connection manager that tells late where it has moved a QP does not bring
// it back to life.
func TestMovedAfterTheEnd(t *testing.T) {
	r := newRig(t, "fake1")
	r.up(r.qp)
	mover := r.qp.Provider().(verbs.ProviderQPMover)
	mover.Moved(verbs.QPStateErr, io.EOF)
	mover.Moved(verbs.QPStateRTS, nil)
	require.Equal(t, verbs.QPStateErr, r.qp.State())
	mover.Moved(verbs.QPStateErr, verbs.ErrClosed)
	require.ErrorIs(t, r.qp.Err(), io.EOF, "the first reason")
	require.NoError(t, r.qp.Close())
	mover.Moved(verbs.QPStateRTS, nil)
	mover.Moved(verbs.QPStateErr, io.ErrUnexpectedEOF)
	require.ErrorIs(t, r.qp.Err(), io.EOF)
}

// TestMovedDepth: on siw, whose queries swap the depths, a QP has the depth with which it was
// connected.
func TestMovedDepth(t *testing.T) {
	r := newRig(t, "fake1")
	require.NoError(t, r.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit}, verbs.QPAttrState|verbs.QPAttrAccessFlags))
	require.True(t, fakeverbs.SetDepths(r.qp.Num(), 2, 5))
	r.qp.Provider().(verbs.ProviderQPMover).Moved(verbs.QPStateRTS, nil)
	r.post(r.qp, reads(r.mr, 0, 4)...)
	require.Len(t, fakeverbs.Posted(), 2)
	attr, err := r.qp.Query()
	require.NoError(t, err)
	require.Equal(t, []int{2, 5}, []int{attr.MaxRdAtomic, attr.MaxDestRdAtomic})
}

// TestSiwQueryRemembers: siw forgets the port and the rights that were set.
func TestSiwQueryRemembers(t *testing.T) {
	r := newRig(t, "fake1")
	require.NoError(t, r.qp.Modify(
		verbs.QPAttr{State: verbs.QPStateInit, PortNum: 1, AccessFlags: verbs.AccessRemoteRead},
		verbs.QPAttrState|verbs.QPAttrPort|verbs.QPAttrPKeyIndex|verbs.QPAttrAccessFlags))
	attr, err := r.qp.Query()
	require.NoError(t, err)
	require.EqualValues(t, 1, attr.PortNum)
	require.Equal(t, verbs.AccessRemoteRead, attr.AccessFlags)
}

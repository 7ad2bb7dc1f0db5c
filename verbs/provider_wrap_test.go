// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainQP, moverQP and outerQP stand for the QPs of three providers.
type (
	plainQP struct{ ProviderQP }
	moverQP struct {
		ProviderQP
		moved []QPState
	}
	outerQP struct {
		ProviderQP
		in ProviderQP
	}
	hidingQP struct{ outerQP }
)

func (q *moverQP) Moved(to QPState, _ error) { q.moved = append(q.moved, to) }
func (q *outerQP) Unwrap() ProviderQP        { return q.in }
func (q *hidingQP) Moved(QPState, error)     {}

func TestAbility(t *testing.T) {
	mover := new(moverQP)
	for name, p := range map[string]ProviderQP{"itself": mover, "below": &outerQP{in: mover},
		"two below": &outerQP{in: &outerQP{in: mover}}} {
		got, ok := Ability[ProviderQPMover](p)
		require.True(t, ok, name)
		require.Same(t, mover, got, name)
	}
	hiding := &hidingQP{outerQP{in: mover}}
	got, ok := Ability[ProviderQPMover](ProviderQP(hiding))
	require.True(t, ok)
	require.Same(t, hiding, got, "what an object does itself hides what is below")

	for name, p := range map[string]ProviderQP{"none": new(plainQP), "nothing below": new(outerQP), "nil": nil,
		"none below": &outerQP{in: new(plainQP)}} {
		_, ok := Ability[ProviderQPMover](p)
		require.False(t, ok, name)
	}
	_, ok = Ability[ProviderQPWatcher](ProviderQP(&outerQP{in: mover}))
	require.False(t, ok, "another ability")
}

func TestOwn(t *testing.T) {
	mover := new(moverQP)
	own, err := Own[*moverQP](ProviderQP(&outerQP{in: mover}))
	require.NoError(t, err)
	require.Same(t, mover, own)
	for _, p := range []ProviderQP{new(plainQP), &outerQP{in: new(plainQP)}, nil} {
		_, err = Own[*moverQP](p)
		require.ErrorIs(t, err, ErrForeign)
		var foreign *ForeignError
		require.ErrorAs(t, err, &foreign)
		require.Equal(t, fmt.Sprintf("%T", p), foreign.Got)
		require.Equal(t, "*verbs.moverQP", foreign.Want)
	}
}

// TestErrorsNameOneCall: an error that has come through the handles of a device below names the
// call and the device of the handle on top.
func TestErrorsNameOneCall(t *testing.T) {
	below := opError("CreateQP", "usiw0", fmt.Errorf("%w: max_qp", ErrLimit))
	err := opError("CreateQP", "outer", opError("CreateQP", "middle", below))
	require.EqualError(t, err, "verbs: CreateQP on outer: limit exceeded: max_qp")
	require.ErrorIs(t, err, ErrLimit)

	below = opError("PostSend", "usiw0", requestCause(2, ErrQueueFull))
	err = opError("PostSend", "outer", requestCause(7, below))
	require.EqualError(t, err, "verbs: PostSend on outer: request 7: work queue full", "the index in the list on top")
	require.ErrorIs(t, err, ErrQueueFull)
	err = opError("PostSend", "outer", requestCause(0, opError("PostSend", "usiw0", requestCause(0, ErrClosed))))
	require.EqualError(t, err, "verbs: PostSend on outer: use of closed handle")

	both := errors.Join(opError("Close", "usiw0", ErrBusy), errors.New("more"))
	require.ErrorIs(t, opError("Close", "outer", both), ErrBusy, "what is joined stays")
}

// SPDX-License-Identifier: BSD-3-Clause

package ibcompat

import (
	"fmt"

	"github.com/goverbs/goverbs/compat/ibcompat/internal/engine"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// Support returns how requests with op posted to qp are executed, and why. qp may belong to any
// device. On iWARP the answer depends on the peer; before a connection exists, a peer with the same
// capabilities is assumed.
func Support(qp *verbs.QP, op verbs.Op) (ext.Support, string) {
	ctx := qp.Context()
	name := ctx.Device().Name()
	s := ext.SupportOf(ctx, op)
	switch {
	case !qp.Supports(op) && s != ext.None:
		return ext.None, fmt.Sprintf("a QP of type %v cannot have %v", qp.Type(), op)
	case s == ext.None:
		return s, fmt.Sprintf("%s does not have %v", name, op)
	}
	if s, why, ok := engine.Support(qp, op); ok {
		return s, why
	}
	if s == ext.Native {
		return s, fmt.Sprintf("%s has %v", name, op)
	}
	own, ok := verbs.Ability[*vcontext](ctx.Provider())
	if !ok {
		return s, fmt.Sprintf("%s says so", name)
	}
	return s, fmt.Sprintf("%s has no %v, but cmp-swap, which is repeated until it succeeds", own.In.Device().Name(), op)
}

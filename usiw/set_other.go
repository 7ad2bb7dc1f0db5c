// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package usiw

import "errors"

// newSet is never called: on these systems no stream is a gatherer.
func newSet(*yielder) (set, error) { return nil, errors.ErrUnsupported }

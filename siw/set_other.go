// SPDX-License-Identifier: BSD-3-Clause

//go:build !linux

package siw

import "errors"

// newSet is not called: no stream is a gatherer here.
func newSet(*yielder) (set, error) { return nil, errors.ErrUnsupported }

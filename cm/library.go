// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// RDMACore returns nil if this program can use librdmacm, and thus connections on kernel devices.
// Otherwise it returns an error that Is [verbs.ErrNotSupported] and has the reason, as
// [verbs.RDMACore] does for libibverbs.
func RDMACore() error {
	if err := verbs.RDMACore(); err != nil {
		return err
	}
	if err := loadLibrary(); err != nil {
		return fmt.Errorf("%w: %w", verbs.ErrNotSupported, err)
	}
	return nil
}

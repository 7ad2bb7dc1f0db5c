// SPDX-License-Identifier: BSD-3-Clause

package dat

import "github.com/goverbs/goverbs/verbs"

// StatusOf converts the status of an underlying completion.
var StatusOf = statusOf

// LastFlags returns the flags of the most recently posted request.
func LastFlags(ep *EP) verbs.SendFlags {
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	return ep.requests.sends[0].Flags
}

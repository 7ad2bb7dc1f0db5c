// SPDX-License-Identifier: BSD-3-Clause

package dat

import "github.com/goverbs/goverbs/verbs"

// StatusOf is the status of a completion below.
var StatusOf = statusOf

// LastFlags are those of the request that was posted last.
func LastFlags(ep *EP) verbs.SendFlags {
	ep.requests.mu.Lock()
	defer ep.requests.mu.Unlock()
	return ep.requests.sends[0].Flags
}

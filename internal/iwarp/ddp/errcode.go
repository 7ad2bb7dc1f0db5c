// SPDX-License-Identifier: BSD-3-Clause

package ddp

// Error types of DDP, which a Terminate carries under layer 1 (RFC 5041 section 7.2).
const (
	// ErrTypeLocal: local catastrophic error, code 0 (RFC 5041 section 7.2).
	ErrTypeLocal = 0
	// ErrTypeTagged: tagged buffer error (RFC 5041 section 7.2).
	ErrTypeTagged = 1
	// ErrTypeUntagged: untagged buffer error (RFC 5041 section 7.2).
	ErrTypeUntagged = 2
	// ErrTypeLLP is reserved for the layer below (RFC 5041 section 7.2). MPA does not use it.
	ErrTypeLLP = 3
)

// Error codes of ErrTypeTagged (RFC 5041 section 7.2).
const (
	// TaggedInvalidSTag: invalid STag (RFC 5041 section 7.2).
	TaggedInvalidSTag = 0
	// TaggedBounds: base or bounds violation (RFC 5041 section 7.2).
	TaggedBounds = 1
	// TaggedNotAssociated: STag not associated with the stream (RFC 5041 section 7.2).
	TaggedNotAssociated = 2
	// TaggedWrap: the tagged offset wraps (RFC 5041 section 7.2).
	TaggedWrap = 3
	// TaggedVersion: invalid DDP version (RFC 5041 section 7.2).
	TaggedVersion = 4
)

// Error codes of ErrTypeUntagged (RFC 5041 section 7.2).
const (
	// UntaggedInvalidQN: invalid queue number (RFC 5041 section 7.2).
	UntaggedInvalidQN = 1
	// UntaggedNoBuffer: invalid MSN, no buffer available (RFC 5041 section 7.2).
	UntaggedNoBuffer = 2
	// UntaggedMSN: invalid MSN, range not valid (RFC 5041 section 7.2).
	UntaggedMSN = 3
	// UntaggedMO: invalid message offset (RFC 5041 section 7.2).
	UntaggedMO = 4
	// UntaggedTooLong: message too long for the available buffer (RFC 5041 section 7.2).
	UntaggedTooLong = 5
	// UntaggedVersion: invalid DDP version (RFC 5041 section 7.2).
	UntaggedVersion = 6
)

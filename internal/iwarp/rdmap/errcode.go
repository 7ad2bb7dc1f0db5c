// SPDX-License-Identifier: BSD-3-Clause

package rdmap

// Layers in a Terminate (RFC 5040 section 4.8).
const (
	// LayerRDMAP: RDMAP detected the error (RFC 5040 section 4.8).
	LayerRDMAP = 0
	// LayerDDP: DDP detected the error; package ddp defines the types and codes (RFC 5040
	// section 4.8).
	LayerDDP = 1
	// LayerMPA: the LLP, which is MPA, detected the error; the type is 0, and package mpa defines
	// the codes (RFC 5040 section 4.8, RFC 6581 section 8).
	LayerMPA = 2
)

// Error types of LayerRDMAP (RFC 5040 section 4.8).
const (
	// ErrTypeLocal: local catastrophic error, any code (RFC 5040 section 4.8).
	ErrTypeLocal = 0
	// ErrTypeProtection: remote protection error (RFC 5040 section 4.8).
	ErrTypeProtection = 1
	// ErrTypeOperation: remote operation error (RFC 5040 section 4.8).
	ErrTypeOperation = 2
)

// Error codes of ErrTypeProtection (RFC 5040 section 4.8).
const (
	// ProtInvalidSTag: invalid STag (RFC 5040 section 4.8).
	ProtInvalidSTag = 0
	// ProtBounds: base or bounds violation (RFC 5040 section 4.8).
	ProtBounds = 1
	// ProtAccess: access rights violation (RFC 5040 section 4.8).
	ProtAccess = 2
	// ProtNotAssociated: STag not associated with the stream (RFC 5040 section 4.8).
	ProtNotAssociated = 3
	// ProtWrap: the tagged offset wraps (RFC 5040 section 4.8).
	ProtWrap = 4
	// ProtCannotInvalidate: STag cannot be invalidated (RFC 5040 section 4.8).
	ProtCannotInvalidate = 9
)

// Error codes of ErrTypeOperation (RFC 5040 section 4.8).
const (
	// OperVersion: invalid RDMAP version (RFC 5040 section 4.8).
	OperVersion = 5
	// OperOpcode: unexpected opcode (RFC 5040 section 4.8).
	OperOpcode = 6
	// OperStream: catastrophic error, localized to the stream (RFC 5040 section 4.8).
	OperStream = 7
	// OperGlobal: catastrophic error, global (RFC 5040 section 4.8).
	OperGlobal = 8
	// OperCannotInvalidate: STag cannot be invalidated (RFC 5040 section 4.8).
	OperCannotInvalidate = 9
)

// Unspecified is the code for an unspecified error, in both ErrTypeProtection and ErrTypeOperation
// (RFC 5040 section 4.8).
const Unspecified = 0xff

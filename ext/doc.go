// SPDX-License-Identifier: BSD-3-Clause

// Package ext holds what RFC 7306 adds to RDMA on iWARP: atomics with masks and 64 bits of
// Immediate Data. It has
//
//   - builders of the work requests: [FetchAddWR], [CmpSwapWR], [MaskedFetchAddWR],
//     [MaskedCmpSwapWR], [ImmDataWR], [WriteImm64WRs];
//   - their arithmetic: [MaskedFetchAdd], [MaskedCmpSwap], and [FieldMask] for words that are
//     divided into fields;
//   - which operations a device has: [Capabilities];
//   - the RFC's way to find out whether the peer has atomics: [Probe].
//
// The builders follow the rule of those of package verbs, of which [FetchAddWR] and [CmpSwapWR] are
// two under the RFC's names: first the peer's memory, then the operands in the order of their
// names, then this side's memory. Each request is signalled, and is refused if the memory is too
// small for it; the caller may change flags and ID, and posts:
//
//	wr := ext.MaskedFetchAddWR(word, 1, mask, sink)
//	wr.ID = 7
//	n, err := qp.PostSend([]verbs.SendWR{wr})
//
// Operands, masks and the original value that arrives in the sink are numbers in host order. The
// target of an atomic is a 64-bit integer in the byte order of the peer's host, in a region with
// AccessRemoteAtomic; its address in memory must be a multiple of 8.
//
// All functions may be called concurrently.
package ext

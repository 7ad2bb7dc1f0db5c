// SPDX-License-Identifier: BSD-3-Clause

// Package ext provides the RDMA extensions of RFC 7306 for iWARP: atomics, also with masks, and
// 64-bit Immediate Data. It has
//
//   - constructors for work requests: [FetchAddWR], [CmpSwapWR], [MaskedFetchAddWR],
//     [MaskedCmpSwapWR], [ImmDataWR], [WriteImm64WRs];
//   - the arithmetic of masked atomics: [MaskedFetchAdd], [MaskedCmpSwap], and [FieldMask] for
//     words divided into fields;
//   - the operations that a device supports: [Capabilities];
//   - the RFC's test of whether the peer supports atomics: [Probe].
//
// The constructors take their arguments in the same order as those of package verbs: the peer's
// memory, the operands, then local memory. [FetchAddWR] and [CmpSwapWR] are verbs.FetchAdd and
// verbs.CmpSwap under the RFC's names. Each request is signalled, and is refused if it exceeds the
// memory; the caller may change its flags and ID before posting it:
//
//	wr := ext.MaskedFetchAddWR(word, 1, mask, sink)
//	wr.ID = 7
//	n, err := qp.PostSend([]verbs.SendWR{wr})
//
// Operands, masks and the original value placed in the sink are numbers in host byte order. The
// target of an atomic is a 64-bit integer in the peer's host byte order, in a region with
// AccessRemoteAtomic; its address in memory must be a multiple of 8.
//
// All functions may be called concurrently.
package ext

// SPDX-License-Identifier: BSD-3-Clause

package rdmap

// ImmediateLen is the length of the Immediate Data header, which is the data
// (RFC 7306 section 6.2).
const ImmediateLen = 8

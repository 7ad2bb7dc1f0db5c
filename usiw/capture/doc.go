// SPDX-License-Identifier: BSD-3-Clause

// Package capture records the traffic of user-space RNICs in a pcapng file. Wireshark and tshark
// decode all fields of its MPA, DDP and RDMAP messages, including the atomics of RFC 7306. The
// bytes come from a tap in the NIC (usiw.Config.Tap), so no privileges, network interface or real
// network are needed.
//
//	w, err := capture.New(file, capture.Config{})
//	nic, err := usiw.New(usiw.Config{Tap: w})
//	...
//	err = errors.Join(nic.Close(), w.Close(), file.Close())
//
// # What in the file is real, and what is synthetic
//
// The stream bytes are those that the NIC sent and received. Each byte is recorded once: if both
// ends of a connection use the same Writer, as two QPs in one process may, only sent bytes are
// recorded. Addresses, ports and times are also real. A NIC has no access to packets, so the rest
// is synthetic: the three packets of the TCP handshake, sequence numbers, acknowledgements, packet
// sizes and windows. Each MPA frame and each FPDU is a separate packet, timestamped with the
// arrival of its last byte; only an FPDU larger than an IP packet occupies two. A stream that does
// not begin with MPA frames is recorded in the pieces in which it arrived. The end of a connection
// has no packet. Endpoints without a TCP address, as on an in-memory network, get addresses in
// 2001:db8::/32; a comment on the first packet of the connection gives their names. A connection is
// identified by the addresses of its two ends, which must differ.
//
// The NIC passes sent bytes to the tap after the socket has accepted them, so an immediate answer
// may be recorded before its request. Data are copied from registered memory at that time. If the
// program changes them between the computation of the CRC and the completion of the request, the
// file contains a bad CRC and does not show which data the peer received. The NIC drops bytes that
// arrive after this side has ended a connection, so they are not recorded.
//
// Two fields limit a file: Config.SnapLen the stored bytes of each packet, Config.MaxBytes the
// total length.
//
// # Reading a file
//
// Wireshark recognises the protocol by its first frames, unless another protocol is registered for
// one of the ports. The following options make it examine the frames first, and keep it from
// guessing the protocol of the payload:
//
//	tshark -o tcp.try_heuristic_first:TRUE \
//		--disable-protocol smb_direct --disable-protocol rpcordma -r FILE
//
// The field iwarp_mpa.crc_check is present if the connection has CRCs; -V shows whether they are
// good. Known problems of Wireshark 4.0:
//
//   - It has no names for the opcodes of Immediate Data, 8 and 9, and does not show the 8 bytes of
//     data, which precede the last four bytes of tcp.payload.
//   - It may report a Send of length zero as malformed.
//   - If one direction has markers, it assumes that both do, and does not decode the other.
//   - If several connections use the same two ports one after the other, it reports the frames of
//     all but the first as malformed FPDUs, and applies the parameters of the first to all. It does
//     decode their FPDUs.
//   - If a Terminate has error type 1 and quotes an untagged message, it splits the quoted headers
//     in the wrong place.
package capture

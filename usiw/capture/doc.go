// SPDX-License-Identifier: BSD-3-Clause

// Package capture writes the bytes of the connections of user-space RNICs to a pcapng file.
// Wireshark and tshark decode all fields of its MPA, DDP and RDMAP messages, including the atomics
// of RFC 7306. The bytes come from a tap in the NIC (usiw.Config.Tap), so that no privileges, no
// network interface and no real network are needed.
//
//	w, err := capture.New(file, capture.Config{})
//	nic, err := usiw.New(usiw.Config{Tap: w})
//	...
//	err = errors.Join(nic.Close(), w.Close(), file.Close())
//
// # What is real in the file and what is made up
//
// The bytes of the streams are those that the NIC sent and received. Each byte is recorded once: if
// both ends of a connection use the same Writer, as two QPs of one process may, only sent bytes are
// recorded. Addresses, ports and times are real too. A NIC sees no packets, so the rest is made up:
// the three packets of the TCP handshake, sequence numbers, acknowledgements, packet sizes and
// windows. Each MPA frame and each FPDU is a separate packet, with the time at which its last byte
// arrived; only an FPDU that is larger than an IP packet takes two. A stream that does not begin
// with MPA frames is recorded in the pieces in which it arrived. There is no packet for the end of
// a connection. Endpoints without a TCP address, as on an in-memory network, get addresses of
// 2001:db8::/32; a comment on the first packet of the connection has their names. A connection is
// identified by the addresses of its two ends, which must differ.
//
// The NIC shows sent bytes after the socket has taken them, so an answer that comes at once may be
// recorded before its request. Data are copied from registered memory at that time. If the program
// changes them between the calculation of the CRC and the completion of the request, the file has a
// bad CRC, and does not show which data the peer got. Bytes that arrive after this side has ended a
// connection are dropped by the NIC and not recorded.
//
// A file can be limited: Config.SnapLen in the bytes of each packet, Config.MaxBytes in its length.
//
// # Reading it
//
// Wireshark recognises the protocol by its first frames, unless another protocol is registered for
// one of the ports. With these options it examines the frames first, and does not guess the
// protocol of the payload:
//
//	tshark -o tcp.try_heuristic_first:TRUE --disable-protocol smb_direct --disable-protocol rpcordma -r FILE
//
// The field iwarp_mpa.crc_check is present if the connection has CRCs; -V shows whether they are
// good. Known faults of Wireshark 4.0:
//
//   - It has no names for the opcodes of Immediate Data, 8 and 9, and does not show the 8 bytes of
//     data, which precede the last four bytes of tcp.payload.
//   - It may report a Send of length zero as malformed.
//   - If one direction has markers, it assumes that both have, and does not decode the other.
//   - If several connections use the same two ports one after the other, it reports the frames of
//     all but the first as malformed FPDUs, and assumes for all what the first agreed on. It does
//     decode their FPDUs.
//   - If a Terminate has error type 1 and quotes an untagged message, it splits the quoted headers
//     in the wrong place.
package capture

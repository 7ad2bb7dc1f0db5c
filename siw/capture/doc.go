// SPDX-License-Identifier: BSD-3-Clause

// Package capture writes what the connections of user-space RNICs carry to a pcapng file, which Wireshark and tshark decode
// down to the fields of every MPA, DDP and RDMAP message, RFC 7306's atomics among them. It taps the NIC itself
// (siw.Config.Tap), so that it needs no privileges, no network interface and not even a network.
//
//	w, err := capture.New(file, capture.Config{})
//	nic, err := siw.New(siw.Config{Tap: w})
//	...
//	err = errors.Join(nic.Close(), w.Close(), file.Close())
//
// # What is true in the file and what is made up
//
// The bytes of the streams are those that the NIC sent and received, each once: where both ends of a connection are on
// the same Writer, as two QPs of one process are, only what is sent is recorded. Addresses, ports and times are the real
// ones too. A NIC sees no packets, so the rest is made up: the three packets that open the connection, sequence numbers,
// acknowledgements, sizes of packets and windows. Each MPA frame and each FPDU is a packet of its own, dated by the arrival
// of its last byte; only FPDUs that are larger than an IP packet take two. A stream that does not begin with MPA frames
// is recorded in the pieces in which it came. There is no packet for the end of a connection. Endpoints whose addresses
// are not those of TCP, as on an in-memory network, get addresses of 2001:db8::/32; a comment on the first packet of the
// connection has their names. A connection is told from others by the addresses of its two ends, which must differ.
//
// The NIC tells what it sends when the socket has taken it, so that an answer which comes at once may stand before what it
// answers. Data are copied from registered memory at that time: where somebody changes them between the calculation of the CRC
// and the completion of the request, the file has a bad CRC, and the peer got data that nobody can tell. What arrives after
// this side has ended a connection is dropped by the NIC and not recorded.
//
// # Reading it
//
// Wireshark recognises the protocol by its first frames, if no other protocol claims one of the ports before. This lets it
// look at the frames first, and keeps it from guessing what the payload is:
//
//	tshark -o tcp.try_heuristic_first:TRUE --disable-protocol smb_direct --disable-protocol rpcordma -r FILE
//
// A field iwarp_mpa.crc_check is there if CRCs were agreed on; -V tells whether they are good. What is known of Wireshark 4.0:
//
//   - It has no names for the opcodes of Immediate Data, 8 and 9, and does not show the 8 bytes, which are the last but four
//     of tcp.payload.
//   - It may take a Send of length zero for malformed.
//   - It believes that both directions have markers if one has. The other is not decoded then.
//   - Of connections one after the other between the same two ports it takes the frames of all but the first for malformed
//     FPDUs, and what was agreed on in the first for agreed on in all. Their FPDUs it decodes.
//   - In a Terminate that quotes an untagged message and whose type of error is 1 it cuts the quoted headers in the wrong
//     place.
package capture

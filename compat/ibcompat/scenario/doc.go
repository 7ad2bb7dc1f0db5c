// SPDX-License-Identifier: BSD-3-Clause

// Package scenario contains small programs that must behave identically on every fabric, and the
// code that compares them. A [Scenario] is a program for both ends of a connection, written against
// the ordinary handles. Its [Trace] is everything that the program can observe: the result of every
// call, every completion in order, and the final memory contents. On the ib:NAME devices of package
// compat/ibcompat, a scenario yields the same trace on every fabric. The command goverbs fabrics
// runs all scenarios on several fabrics, the columns of a [Report].
//
// The name of a scenario starts with the row of the table in docs/semantics.md that it tests, for
// example row04/write-imm.
//
// A completion is compared by wr_id and status. If it succeeded, so is its opcode, and for a
// receive also byte_len and the immediate, if any. The other fields are undefined (ibv_poll_cq(3))
// or specific to a device, like QP numbers, keys and addresses. Errors are compared by the sentinel
// of verbs or cm that they match with errors.Is.
//
// Where events are concurrent, the scenario's Reduced field states what is deterministic about
// them, and the trace contains only that.
package scenario

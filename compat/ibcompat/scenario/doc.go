// SPDX-License-Identifier: BSD-3-Clause

// Package scenario has small programs that must do the same on every fabric, and what compares it.
// A [Scenario] is a program for two ends of a connection over the ordinary handles; its [Trace] is
// everything that the program can see: what every call has returned, every completion in its order,
// and the memory at the end. On devices ib:NAME of package compat/ibcompat the traces of a scenario
// are the same on all fabrics. The command goverbs fabrics runs all scenarios on several of them,
// the columns of a [Report].
//
// A name has the row of the table in docs/semantics.md that the scenario is about, for example
// row04/write-imm.
//
// Of a completion the wr_id and the status are compared; if it succeeded also the opcode; of a
// receive also byte_len, whether there is an immediate, and the immediate. The rest is undefined
// (ibv_poll_cq(3)), or belongs to one device, like numbers of QPs, keys and addresses. Of an error
// it is compared which sentinel of verbs or cm it Is.
//
// Where two things happen at the same time, a scenario says in Reduced what of them is fixed, and
// its trace has only that.
package scenario

// SPDX-License-Identifier: BSD-3-Clause

// Package dat is a Go version of the DAT 2.0 (uDAPL) interface, with its immediate data proposal
// and InfiniBand atomics, on top of the devices of package ibcompat. A uDAPL program can be ported
// to it line by line and then runs on InfiniBand, RoCE and iWARP alike. docs/porting-dat.md lists
// every uDAPL call and what is omitted.
//
//	ia, err := dat.Open("ib:usiw0", dat.Config{})
//	pz, err := ia.CreatePZ()
//	evd, err := ia.CreateEVD(64, dat.EVDDTO|dat.EVDConnection)
//	ep, err := ia.CreateEP(pz, evd, evd, evd, dat.EPAttr{})
//	lmr, err := pz.AllocLMR(4096, dat.MemPrivAll)
//	err = ep.Connect(address, 7306, time.Second, nil)
//	ev, more, err := evd.Wait(ctx, dat.Infinite, 1) // ev.Number is dat.ConnectionEstablished
//	segment, err := lmr.Segment(0, 11)
//	err = ep.PostSend([]dat.LMRTriplet{segment}, 1, dat.CompletionDefault)
//	ev, more, err = evd.Wait(ctx, dat.Infinite, 1) // ev.DTO is that of the message
//
// It is a thin layer: an EP is a queue pair and a connection of package cm, and an EVD is a
// completion queue plus a queue of other events. New programs need less code with package cm.
//
// # Objects
//
//	IA     an open device (dat_ia_open)
//	  PZ     a protection zone, verbs.PD
//	    LMR    registered memory, verbs.MR
//	    EP     an endpoint, verbs.QP; also below its EVDs
//	  EVD    an event dispatcher, verbs.CQ if it takes completions
//	  PSP    a public service point, cm.Listener; also below its EVD
//	  CR     a connection request, cm.Request; until it is answered
//
// Objects are freed explicitly, children before their parents. Freeing a parent with live children
// returns [InvalidState] with the parent's subtype. Free is idempotent. IA.Close with CloseAbrupt
// frees everything. A call on a freed object returns [InvalidHandle]. Handles in events are the
// ones that the program created; a CR's handle belongs to the program too.
//
// # Errors
//
// The error of a call is an *[Error] with the type and subtype of dat_error.h. Both are errors to
// compare with:
//
//	if errors.Is(err, dat.QueueEmpty) { ... }
//	if errors.Is(err, dat.InvalidStateEPUnconnected) { ... }
//
// An invalid argument is identified by its position in the C function. The outcome of a DTO is the
// Status of its event.
//
// # States of an EP
//
//	                     Connect                            established
//	UNCONNECTED ----------------------> ACTIVE_CONNECTION_PENDING -------> CONNECTED
//	    ^     \                                    |                      /   |    |
//	    |      \  CR.Accept                        | refused, established/    |    | Disconnect
//	    |       -----------------> COMPLETION_PENDING  time-out ... ----/     |    v
//	    | Reset                                    |                          | DISCONNECT_PENDING
//	    |                                          v   peer or a fault ends it|    | it has ended
//	    +---------------------------------- DISCONNECTED <--------------------+----+
//
// Disconnect in either of the two pending states also leads to DISCONNECT_PENDING. The table shows
// the calls in each state; the subtype of [InvalidState] names the state:
//
//	                            UNCONNECTED  pending  CONNECTED  DISCONNECT_PENDING  DISCONNECTED
//	Connect, CR.Accept          yes          error    error      error               error
//	PostRecv, PostRecvImmed     yes          yes      yes        yes                 flushed
//	other posts                 error        error    yes        error               flushed
//	Disconnect                  error        yes      yes        yes                 nothing
//	Reset                       nothing      error    error      error               yes
//	Free                        yes          yes      yes        yes                 yes
//
// When the event DISCONNECTED, BROKEN or that of a failed attempt is delivered, the EP is already
// DISCONNECTED and its DTOs are flushed: their events are in the EVDs.
//
// # Events of DTOs
//
//	post                      flags          event here         event at the peer
//	PostSend                                 SEND               RECEIVE
//	PostSendImmed             IMMED          SEND_IMMED         RECEIVE_IMMED
//	PostSendImmed                            SEND               RECEIVE
//	PostRDMAWrite                            RDMA_WRITE
//	PostWriteImmed            IMMED          RDMA_WRITE_IMMED   RECEIVE_RDMA_IMMED
//	PostWriteImmed                           RDMA_WRITE
//	PostRDMARead                             RDMA_READ
//	PostFetchAndAdd and so on                EXTENSION
//
// All are DTOCompletionEvent events, in posting order for each queue of an EP. The text of the
// proposal calls the flags DAT_IMMED_FLAG and DAT_CONFIRM_FLAG; this package uses the names of its
// enum. With IMMED_CONFIRM, the DTO completes once the peer has received it. Without it, the DTO
// may complete as early as the fabric allows (verbs.SendRelaxed). PostSend and PostRDMAWrite always
// confirm.
//
// # Completion flags
//
//	flag            verbs                 effect
//	SUPPRESS        without SendSignaled  no event on success; a later event frees its place
//	SOLICITED_WAIT  SendSolicited         wakes the peer's waiter, if its EVD is solicited
//	UNSIGNALLED     SendSignaled          an event on success, for which the EVD wakes no waiter
//	BARRIER_FENCE   SendFence             starts after all earlier Reads and atomics of the EP
//
// An EVD is solicited if it collects the receives of an EP whose RecvCompletionFlags include
// SOLICITED_WAIT. A wait on it sleeps until a message arrives whose sender requests a wake-up, or
// until something fails (verbs.CQ.WaitSolicited). Other completions do not end the wait. That
// includes completions of requests, which should have an EVD of their own. A completion that
// arrives just as Wait goes to sleep may end it nevertheless, as may Reset and Free of an EP that
// feeds the EVD.
//
// # EVDs
//
// Events of all kinds can share an EVD. Wait returns once the EVD holds as many events of any kind
// as the threshold, or when its timeout expires or its context is done. An EVD has room for as many
// events other than completions as it was created for. An event that finds no room is lost, and the
// asynchronous EVD receives [AsyncEVDOverflow]; a connection request is rejected. Completions need
// room in the completion queue, which holds at least as many as it was created for. A program that
// has more DTOs outstanding than there is room for, and does not dequeue events, loses its
// connections, as verbs.Context.CreateCQ describes. The asynchronous EVD then receives
// AsyncEVDOverflow, and Wait and Dequeue fail after returning the remaining events.
//
// # Ownership
//
// From the post until its event, or the event of a later DTO if it is suppressed, the memory of a
// DTO belongs to the device. Slices passed to calls are not retained. An EP uses the QP, LMRs and
// EVDs that it was created with; the program must not use the underlying objects directly. Posting
// and dequeueing neither block nor allocate; Wait does so only if it sleeps.
//
// # Locks
//
//	records.mu     (of a queue of an EP; held during a post)
//	EP.mu -> EVD.mu -> records.mu
//	IA.mu          (a leaf)
//
// # Files
//
// ia, ia_query, pz, lmr, evd, evd_wait, psp, cr, ep: the objects; ep_post, ep_immed, ep_atomic:
// DTOs; ep_connect: the lifecycle of a connection; records: tracking of outstanding DTOs; return,
// flags, dto, event: names and numbers; print: how handles are printed.
package dat

// SPDX-License-Identifier: BSD-3-Clause

// Package dat is the interface of DAT 2.0 (uDAPL) in Go's shape, with its immediate data proposal
// and its InfiniBand atomics, over the devices of package ibcompat: a uDAPL program can be ported
// to it line by line, and then runs on InfiniBand, RoCE and iWARP alike. docs/porting-dat.md has
// every call of uDAPL, and what is left out.
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
// It is a thin layer: an EP is a queue pair and a connection of package cm, an EVD a completion
// queue and a queue of other events. Who does not port a program writes less with package cm.
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
// Objects are freed explicitly, children before their parents; freeing a parent with live children
// is [InvalidState] with the subtype of the parent. Free is idempotent. IA.Close with CloseAbrupt
// frees everything. A call on a freed object is [InvalidHandle]. Handles that events have are the
// program's own; those of a CR belong to it.
//
// # Errors
//
// The error of a call is an *[Error] with the type and the subtype of dat_error.h, which are errors
// to compare with:
//
//	if errors.Is(err, dat.QueueEmpty) { ... }
//	if errors.Is(err, dat.InvalidStateEPUnconnected) { ... }
//
// An argument is named by its place in the C function. The outcome of a DTO is the Status of its
// event.
//
// # States of an EP
//
//	                     Connect                                 established
//	UNCONNECTED ----------------------> ACTIVE_CONNECTION_PENDING ------------> CONNECTED
//	    ^     \                                    |                           /   |    |
//	    |      \  CR.Accept                        | refused,      established/    |    | Disconnect
//	    |       -----------------> COMPLETION_PENDING  time-out ... ---------/     |    v
//	    | Reset                                    |                               | DISCONNECT_PENDING
//	    |                                          v        peer or a fault ends it|    | it has ended
//	    +---------------------------------- DISCONNECTED <-------------------------+----+
//
// Disconnect in one of the two pending states leads to DISCONNECT_PENDING too. The calls in each
// state; the subtype of [InvalidState] is that of the state:
//
//	                            UNCONNECTED  pending  CONNECTED  DISCONNECT_PENDING  DISCONNECTED
//	Connect, CR.Accept          yes          error    error      error               error
//	PostRecv, PostRecvImmed     yes          yes      yes        yes                 flushed
//	other posts                 error        error    yes        error               flushed
//	Disconnect                  error        yes      yes        yes                 nothing
//	Reset                       nothing      error    error      error               yes
//	Free                        yes          yes      yes        yes                 yes
//
// Before the event DISCONNECTED, BROKEN or of a failed attempt comes, the EP is DISCONNECTED and
// its DTOs are flushed: their events are in the EVDs.
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
// All are events DTOCompletionEvent, in the order of posting for each queue of an EP. The proposal
// calls the flags DAT_IMMED_FLAG and DAT_CONFIRM_FLAG in its text; here they have the names of its
// enum. IMMED_CONFIRM: the DTO completes when the peer has it. Without it, it may complete earlier,
// as early as the fabric does (verbs.SendRelaxed). PostSend and PostRDMAWrite always confirm.
//
// # Completion flags
//
//	flag            verbs                                what it does
//	SUPPRESS        without SendSignaled                 no event on success; a later one frees its place
//	SOLICITED_WAIT  SendSolicited                        wakes the peer's waiter, if its EVD is solicited
//	UNSIGNALLED     SendSignaled; the EVD tells it apart  an event on success that wakes no waiter
//	BARRIER_FENCE   SendFence                            starts after all earlier Reads and atomics of the EP
//
// The EVD of receives whose EP has RecvCompletionFlags with SOLICITED_WAIT is solicited: a wait
// sleeps until a message comes whose sender asks for it, or until something fails
// (verbs.CQ.WaitSolicited). Other completions do not end it, also not those of requests, which
// should have an EVD of their own. One that arrives while Wait goes to sleep may end it all the
// same, and so may Reset and Free of an EP that feeds the EVD.
//
// # EVDs
//
// Any kinds of events can share an EVD. Wait returns when there are as many events as its
// threshold, of whatever kind. Its time-out and its context end it. An EVD has room for as many
// events other than completions as it was made for. One for which there is no room is lost, and the
// asynchronous EVD gets [AsyncEVDOverflow]; a connection request is refused. Completions need room
// in the completion queue, which holds what it was made for or more: a program that lets more DTOs
// be outstanding than there is room for, and takes no events, loses the connections, as package
// verbs says (verbs.Context.CreateCQ). The asynchronous EVD gets AsyncEVDOverflow then, and Wait
// and Dequeue fail when they have returned what is left.
//
// # Who owns what
//
// From the post to the event, or to the event of a later DTO if it is suppressed, the memory of a
// DTO belongs to the device. Slices that are passed are not kept. An EP uses the QP, LMRs and EVDs
// that it was made of; the program uses none of what lies below. Posting and dequeueing wait for
// nothing and allocate nothing, Wait only if it sleeps.
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
// DTOs; ep_connect: the life of a connection; records: what is remembered of DTOs; return, flags,
// dto, event: names and numbers; print: how handles are printed.
package dat

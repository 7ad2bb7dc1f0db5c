// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package verbs

// A fault is a deviation of a driver from what libibverbs promises, or from what InfiniBand
// hardware does. The driver's own types correct it or refuse the call. This file is the only list
// of the faults, their locations and the kernels that have them. Code that corrects a fault tests
// for it with faultSet.has; docs/support.md describes what a program observes.
type fault uint

// Faults of siw.
const (
	siwForgetsRequests fault = iota
	siwWrongOrder
	siwQueryUnreliable
	siwReadEmpty
	siwReceiveEmpty
	siwElementEmpty
	siwFencedRead
	siwNoDepthJams
	siwTurnJams
	siwReadOfNothing
	siwPageTorn
	siwMissesFirstMessages
	siwOpensSilently
	siwNeverSolicited
	siwIovaIgnored
	siwResetRefused
	siwOffsetRefused
	siwOpcodeUnchecked
	siwKeyElsewhere
	siwPostMiscounts
)

// Faults of rxe.
const (
	rxeReceiveForgotten fault = iota + siwPostMiscounts + 1
	rxeFenceLost
	rxeNoDepthJams
	rxeWrongFlag
	rxeBusyInvalid
	rxeWindowKeepsQP
	rxeLengthStatus
	rxeReceiveStatus
	rxeSourceStatus
	rxeInvalidateStatus
	rxeOnDemandMisplaced
	faultsEnd
)

// faultInfo describes a fault and its location.
type faultInfo struct {
	what    string
	in      string // the file of the kernel's drivers/infiniband/sw or of rdma-core's providers, and the function
	library bool   // in the driver's part of rdma-core, where no kernel can repair it
	// kernels lists the Linux versions whose driver has the fault, according to a test or its
	// source. For a library's fault it refers to rdma-core 44. Other versions were not examined.
	// "newest" was 7.3.
	kernels string
}

const both = "6.1, 6.12"

var faultInfos = [faultsEnd]faultInfo{
	siwForgetsRequests: {"takes requests after the connection is lost and never completes them",
		"siw_qp.c siw_sq_flush", false, both},
	siwWrongOrder: {"completes a Write before an earlier Read, and unsignalled requests out of order",
		"siw_qp_tx.c siw_qp_sq_process", false, both},
	siwQueryUnreliable: {"exchanges the two depths and does not tell port and rights, nor, on 6.1, the state",
		"siw_verbs.c siw_query_qp", false, both},
	siwReadEmpty: {"makes a Read without elements one of another length", "siw_qp_tx.c siw_qp_prepare_tx", false,
		both},
	siwReceiveEmpty: {"refuses receives without elements", "siw.c push_recv_wqe", true, both},
	siwElementEmpty: {"uses a region that it has not looked up for an element of length 0 among others",
		"siw_qp_tx.c siw_tx_hdt", false, both},
	siwFencedRead: {"stops for good at a fenced Read", "siw_qp.c siw_activate_tx_from_sq", false, both},
	siwNoDepthJams: {"stops for good at a Read while the depth is 0", "siw_qp.c siw_activate_tx_from_sq", false,
		both},
	siwTurnJams: {"answers no Read while a request of its own waits for its turn, or with a fence",
		"siw_qp_rx.c siw_init_rresp", false, both},
	siwReadOfNothing: {"answers a Read of 0 bytes with others if it is sending when that comes",
		"siw_qp_rx.c siw_init_rresp", false, both},
	siwPageTorn: {"sends short messages wrongly from one element that crosses a page", "siw_qp_tx.c siw_try_1seg",
		false, both}, siwMissesFirstMessages: {"as responder overlooks messages right behind its Reply until others come",
		"siw_cm.c siw_accept", false, both},
	siwOpensSilently:   {"as initiator sends nothing by itself", "siw_cm.c siw_connect", false, both},
	siwNeverSolicited:  {"never counts a receive as solicited", "siw_qp.c siw_rqe_complete", false, both},
	siwIovaIgnored:     {"registers memory under its own address", "siw_verbs.c siw_reg_user_mr", false, both},
	siwResetRefused:    {"has no way back to RESET for a QP that was connected", "siw_qp.c siw_qp_modify", false, both},
	siwOffsetRefused:   {"takes an offset that the kernel gives out for none", "siw.c siw_create_cq", true, both},
	siwOpcodeUnchecked: {"indexes a table with opcodes unchecked", "siw.c push_send_wqe", true, both},
	siwKeyElsewhere:    {"looks for the key to invalidate where that of a Write is", "siw.c push_send_wqe", true, both},
	siwPostMiscounts: {"answers a post by a negative number, or by success after a part", "siw.c siw_post_send", true,
		both},

	rxeReceiveForgotten: {"does not flush receives that are posted in ERR", "rxe.c rxe_post_recv", true, both},
	rxeFenceLost: {"does not send a fenced request again before a later Read is answered",
		"rxe_req.c rxe_wqe_is_fenced", false, both},
	rxeNoDepthJams: {"stops for good at a Read or atomic while the depth is 0", "rxe_req.c check_init_depth", false,
		both},
	rxeWrongFlag: {"sets IBV_WC_GRH on every receive, and of an invalidated key the kernel's flag",
		"rxe_resp.c do_complete", false, both},
	rxeBusyInvalid: {"answers EINVAL for a region with windows", "rxe_mr.c rxe_dereg_mr; 6.12: rxe_verbs.c", false,
		both},
	rxeWindowKeepsQP: {"waits 50 s for a QP on which a window of type 2 is bound, then frees it although the window refers to it",
		"rxe_pool.c __rxe_cleanup; rxe_mw.c rxe_do_bind_mw", false, both},
	rxeLengthStatus: {"tells REM_OP_ERR for a message longer than the receive", "rxe_resp.c send_data_in", false,
		both},
	rxeReceiveStatus: {"tells LOC_QP_OP_ERR for a receive that is too short or of wrong memory",
		"rxe_resp.c send_data_in", false, both},
	rxeSourceStatus: {"tells LOC_QP_OP_ERR for a wrong local key", "rxe_req.c rxe_requester", false, "6.1"},
	rxeInvalidateStatus: {"tells LOC_QP_OP_ERR for an invalidation that cannot be", "rxe_req.c rxe_do_local_ops", false,
		"6.1"},
	rxeOnDemandMisplaced: {"accesses a page that is not pinned from its beginning, wherever in it the bytes are",
		"rxe_odp.c __rxe_odp_mr_copy", false, "newest"},
}

// faultSet is the set of faults of a device: its driver's faults without those known to be
// repaired.
type faultSet uint64

const (
	siwFaults faultSet = 1<<(siwPostMiscounts+1) - 1
	rxeFaults faultSet = 1<<faultsEnd - 1 - siwFaults
)

func (s faultSet) has(f fault) bool { return s>>f&1 != 0 }

// without returns the set without the repaired faults.
func (s faultSet) without(repaired ...fault) faultSet {
	for _, f := range repaired {
		s &^= 1 << f
	}
	return s
}

// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"strings"
)

// All values in this file equal those of rdma-core's <infiniband/verbs.h>, named in the trailing
// comments; the texts equal those of its ibv_*_str functions. Values without a counterpart there
// are marked "our own".

// NodeType is the kind of a device.
type NodeType uint8

const (
	NodeCA   NodeType = 1 // IBV_NODE_CA
	NodeRNIC NodeType = 4 // IBV_NODE_RNIC
)

// String returns the text of ibv_node_type_str.
func (t NodeType) String() string {
	return enumText(int(t), []string{1: "InfiniBand channel adapter", 2: "InfiniBand switch", 3: "InfiniBand router",
		4: "iWARP NIC", 5: "usNIC", 6: "usNIC UDP"}, "NodeType")
}

// Transport is the wire protocol family of a device. It does not determine which operations the
// device has: see [Context.Supports].
type Transport int8

const (
	TransportUnknown     Transport = -1 // IBV_TRANSPORT_UNKNOWN
	TransportIB          Transport = 0  // IBV_TRANSPORT_IB: InfiniBand and RoCE
	TransportIWARP       Transport = 1  // IBV_TRANSPORT_IWARP
	TransportUSNIC       Transport = 2  // IBV_TRANSPORT_USNIC
	TransportUSNICUDP    Transport = 3  // IBV_TRANSPORT_USNIC_UDP
	TransportUnspecified Transport = 4  // IBV_TRANSPORT_UNSPECIFIED
)

// String returns the name that ibv_devinfo prints.
func (t Transport) String() string {
	return enumText(int(t), []string{"InfiniBand", "iWARP", "usNIC", "usNIC UDP", "unspecified"}, "Transport")
}

// PortState is the state of a port.
type PortState uint8

const (
	PortNop         PortState = iota // IBV_PORT_NOP
	PortDown                         // IBV_PORT_DOWN
	PortInit                         // IBV_PORT_INIT
	PortArmed                        // IBV_PORT_ARMED
	PortActive                       // IBV_PORT_ACTIVE
	PortActiveDefer                  // IBV_PORT_ACTIVE_DEFER
)

// String returns the text of ibv_port_state_str.
func (s PortState) String() string {
	return enumText(int(s), []string{"no state change (NOP)", "down", "init", "armed", "active", "active defer"},
		"PortState")
}

// LinkLayer is the link layer of a port.
type LinkLayer uint8

const (
	LinkLayerUnspecified LinkLayer = iota // IBV_LINK_LAYER_UNSPECIFIED
	LinkLayerInfiniBand                   // IBV_LINK_LAYER_INFINIBAND
	LinkLayerEthernet                     // IBV_LINK_LAYER_ETHERNET
)

// String returns the name that ibv_devinfo prints.
func (l LinkLayer) String() string {
	return enumText(int(l), []string{"unspecified", "InfiniBand", "Ethernet"}, "LinkLayer")
}

// MTU is an enumerated path MTU: 1 = 256 bytes up to 5 = 4096.
type MTU uint8

const (
	MTU256  MTU = 1 // IBV_MTU_256
	MTU512  MTU = 2 // IBV_MTU_512
	MTU1024 MTU = 3 // IBV_MTU_1024
	MTU2048 MTU = 4 // IBV_MTU_2048
	MTU4096 MTU = 5 // IBV_MTU_4096
)

// Bytes returns the MTU in bytes, or 0 for an undefined value.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// MTUOf returns the MTU for 256, 512, 1024, 2048 or 4096 bytes. For other sizes the error Is
// [ErrInvalid].
func MTUOf(bytes int) (MTU, error) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, nil
		}
	}
	return 0, invalid("MTU of %d bytes: there are 256, 512, 1024, 2048 and 4096", bytes)
}

// AtomicCap is the scope within which a device's atomics are atomic.
type AtomicCap uint8

const (
	AtomicNone AtomicCap = iota // IBV_ATOMIC_NONE: no atomics
	AtomicHCA                   // IBV_ATOMIC_HCA: with respect to other atomics of the same device
	AtomicGlob                  // IBV_ATOMIC_GLOB: also with respect to the CPU and other devices
)

// String returns the C name.
func (a AtomicCap) String() string {
	return enumText(int(a), []string{"ATOMIC_NONE", "ATOMIC_HCA", "ATOMIC_GLOB"}, "AtomicCap")
}

// DeviceCapFlags are the capability bits of [DeviceAttr].
type DeviceCapFlags uint32

const (
	DeviceMemWindow       DeviceCapFlags = 1 << 17 // IBV_DEVICE_MEM_WINDOW
	DeviceMemMgtExt       DeviceCapFlags = 1 << 21 // IBV_DEVICE_MEM_MGT_EXTENSIONS
	DeviceMemWindowType2A DeviceCapFlags = 1 << 23 // IBV_DEVICE_MEM_WINDOW_TYPE_2A
	DeviceMemWindowType2B DeviceCapFlags = 1 << 24 // IBV_DEVICE_MEM_WINDOW_TYPE_2B
)

// AccessFlags are the access rights of a memory region, a memory window or a QP. Local reads are
// always allowed.
type AccessFlags uint32

const (
	// IBV_ACCESS_LOCAL_WRITE: the device may place received messages, Read data and atomic results
	AccessLocalWrite   AccessFlags = 1 << 0
	AccessRemoteWrite  AccessFlags = 1 << 1 // IBV_ACCESS_REMOTE_WRITE: needs AccessLocalWrite
	AccessRemoteRead   AccessFlags = 1 << 2 // IBV_ACCESS_REMOTE_READ
	AccessRemoteAtomic AccessFlags = 1 << 3 // IBV_ACCESS_REMOTE_ATOMIC: needs AccessLocalWrite
	AccessMWBind       AccessFlags = 1 << 4 // IBV_ACCESS_MW_BIND: windows may be bound to the region
	AccessZeroBased    AccessFlags = 1 << 5 // IBV_ACCESS_ZERO_BASED: addresses are offsets from the start
	AccessOnDemand     AccessFlags = 1 << 6 // IBV_ACCESS_ON_DEMAND: the device faults pages in instead of pinning them
	AccessHugeTLB      AccessFlags = 1 << 7 // IBV_ACCESS_HUGETLB: AllocMR requests huge pages

	// IBV_ACCESS_RELAXED_ORDERING: the device may place data out of order. It is a hint that
	// devices may ignore.
	AccessRelaxedOrdering AccessFlags = 1 << 20

	accessKnown = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessMWBind |
		AccessZeroBased |
		AccessOnDemand | AccessHugeTLB | AccessRelaxedOrdering
	accessRemote = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
)

// String lists the flags by their C names without IBV_ACCESS_.
func (a AccessFlags) String() string {
	return flagText(uint64(a),
		[]string{"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED", "ON_DEMAND",
			"HUGETLB", 20: "RELAXED_ORDERING"})
}

// QPType is the transport service of a queue pair.
type QPType uint8

const (
	QPTypeRC QPType = 2 // IBV_QPT_RC: reliable connection
	QPTypeUC QPType = 3 // IBV_QPT_UC: unreliable connection
	QPTypeUD QPType = 4 // IBV_QPT_UD: unreliable datagrams
)

// String returns the C name without IBV_QPT_.
func (t QPType) String() string {
	return enumText(int(t), []string{2: "RC", 3: "UC", 4: "UD"}, "QPType")
}

// QPState is the state of a queue pair.
type QPState uint8

const (
	QPStateReset QPState = iota // IBV_QPS_RESET
	QPStateInit                 // IBV_QPS_INIT: receives may be posted
	QPStateRTR                  // IBV_QPS_RTR: ready to receive
	QPStateRTS                  // IBV_QPS_RTS: ready to send
	QPStateSQD                  // IBV_QPS_SQD: send queue draining
	QPStateSQE                  // IBV_QPS_SQE: send queue error
	QPStateErr                  // IBV_QPS_ERR: all requests are flushed
)

// String returns the C name without IBV_QPS_.
func (s QPState) String() string {
	return enumText(int(s), []string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}, "QPState")
}

// MWType is the kind of a memory window.
type MWType uint8

const (
	MWType1 MWType = 1 // IBV_MW_TYPE_1: bound by QP.BindMW, which chooses the key
	MWType2 MWType = 2 // IBV_MW_TYPE_2: bound by a work request, invalidated by either side
)

// String returns the C name without IBV_MW_.
func (t MWType) String() string {
	return enumText(int(t), []string{1: "TYPE_1", 2: "TYPE_2"}, "MWType")
}

// WROpcode is the operation of a send work request.
//
// When a request succeeds, its memory may be reused. What else success means depends on the fabric.
// On InfiniBand and RoCE a Send or a Write succeeds when the peer's device acknowledges it. On
// iWARP it succeeds when the data are handed to the local TCP (RFC 5040 section 5.5): the peer may
// not have them yet and may still reject them, which ends the connection but does not change the
// completion. Arrival is confirmed by a later Read or atomic that succeeds, or by a message that
// the peer's program sends in response. A Read or an atomic succeeds when its result is in memory,
// on every device.
type WROpcode uint8

const (
	WRRDMAWrite               WROpcode = 0  // IBV_WR_RDMA_WRITE
	WRRDMAWriteWithImm        WROpcode = 1  // IBV_WR_RDMA_WRITE_WITH_IMM
	WRSend                    WROpcode = 2  // IBV_WR_SEND
	WRSendWithImm             WROpcode = 3  // IBV_WR_SEND_WITH_IMM
	WRRDMARead                WROpcode = 4  // IBV_WR_RDMA_READ
	WRAtomicCmpAndSwp         WROpcode = 5  // IBV_WR_ATOMIC_CMP_AND_SWP
	WRAtomicFetchAndAdd       WROpcode = 6  // IBV_WR_ATOMIC_FETCH_AND_ADD
	WRLocalInv                WROpcode = 7  // IBV_WR_LOCAL_INV
	WRBindMW                  WROpcode = 8  // IBV_WR_BIND_MW
	WRSendWithInv             WROpcode = 9  // IBV_WR_SEND_WITH_INV
	WRMaskedAtomicCmpAndSwp   WROpcode = 12 // IB_UVERBS_WR_MASKED_ATOMIC_CMP_AND_SWP of <rdma/ib_user_verbs.h>
	WRMaskedAtomicFetchAndAdd WROpcode = 13 // IB_UVERBS_WR_MASKED_ATOMIC_FETCH_AND_ADD of <rdma/ib_user_verbs.h>
	WRAtomicWrite             WROpcode = 15 // IBV_WR_ATOMIC_WRITE; see QPConfig.SendOps
	WRImmData                 WROpcode = 64 // our own: RFC 7306 Immediate Data, 8 bytes; with SendSolicited opcode 9

	wrOpcodeCount = 65
)

// String returns the C name without IBV_WR_.
func (o WROpcode) String() string {
	if o == WRImmData {
		return "IMM_DATA"
	}
	return enumText(int(o), []string{"RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ",
		"ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "SEND_WITH_INV", "TSO", "DRIVER1",
		"MASKED_ATOMIC_CMP_AND_SWP", "MASKED_ATOMIC_FETCH_AND_ADD", "FLUSH", "ATOMIC_WRITE"}, "WROpcode")
}

// Completion returns the opcode in the completion of a successful request (enum ibv_wc_opcode of
// ibv_poll_cq(3)). It does not reflect immediates or invalidation: a Write with immediate completes
// as WCRDMAWrite, and every kind of Send as WCSend. Undefined opcodes also return WCSend.
func (o WROpcode) Completion() WCOpcode {
	switch o {
	case WRRDMAWrite, WRRDMAWriteWithImm:
		return WCRDMAWrite
	case WRRDMARead:
		return WCRDMARead
	case WRAtomicWrite:
		return WCAtomicWrite
	case WRAtomicCmpAndSwp:
		return WCCompSwap
	case WRAtomicFetchAndAdd:
		return WCFetchAdd
	case WRMaskedAtomicCmpAndSwp:
		return WCMaskedCompSwap
	case WRMaskedAtomicFetchAndAdd:
		return WCMaskedFetchAdd
	case WRLocalInv:
		return WCLocalInv
	case WRBindMW:
		return WCBindMW
	case WRImmData:
		return WCImmData
	}
	return WCSend
}

// SendFlags modify a send work request.
type SendFlags uint8

const (
	SendFence SendFlags = 1 << 0 // IBV_SEND_FENCE: start after all earlier Reads and atomics complete
	// IBV_SEND_SIGNALED: generate a completion on success too; without it, only errors do
	SendSignaled  SendFlags = 1 << 1
	SendSolicited SendFlags = 1 << 2 // IBV_SEND_SOLICITED: the peer's receive completion is a solicited event
	SendInline    SendFlags = 1 << 3 // IBV_SEND_INLINE: posting copies the data; the buffers may be reused at once

	// SendRelaxed applies to devices that delay the completion of a Send or Write until the peer is
	// known to have the data, even if the underlying fabric completes it earlier. With the flag it
	// completes as early as on the fabric. All other devices ignore the flag; libibverbs has no
	// counterpart.
	SendRelaxed SendFlags = 1 << 7

	sendFlagsKnown = SendFence | SendSignaled | SendSolicited | SendInline | SendRelaxed
)

// String lists the flags by their C names without IBV_SEND_.
func (f SendFlags) String() string {
	return flagText(uint64(f), []string{"FENCE", "SIGNALED", "SOLICITED", "INLINE", "IP_CSUM", "", "", "RELAXED"})
}

// WCStatus is the result of a work request (ibv_wc_status_str(3)). Values other than [WCSuccess]
// are errors; docs/guide.md has a table of causes and remedies.
type WCStatus uint8

const (
	WCSuccess        WCStatus = iota // IBV_WC_SUCCESS
	WCLocLenErr                      // IBV_WC_LOC_LEN_ERR
	WCLocQPOpErr                     // IBV_WC_LOC_QP_OP_ERR
	WCLocEECOpErr                    // IBV_WC_LOC_EEC_OP_ERR
	WCLocProtErr                     // IBV_WC_LOC_PROT_ERR
	WCWRFlushErr                     // IBV_WC_WR_FLUSH_ERR
	WCMWBindErr                      // IBV_WC_MW_BIND_ERR
	WCBadRespErr                     // IBV_WC_BAD_RESP_ERR
	WCLocAccessErr                   // IBV_WC_LOC_ACCESS_ERR
	WCRemInvReqErr                   // IBV_WC_REM_INV_REQ_ERR
	WCRemAccessErr                   // IBV_WC_REM_ACCESS_ERR
	WCRemOpErr                       // IBV_WC_REM_OP_ERR
	WCRetryExcErr                    // IBV_WC_RETRY_EXC_ERR
	WCRNRRetryExcErr                 // IBV_WC_RNR_RETRY_EXC_ERR
	WCLocRDDViolErr                  // IBV_WC_LOC_RDD_VIOL_ERR
	WCRemInvRdReqErr                 // IBV_WC_REM_INV_RD_REQ_ERR
	WCRemAbortErr                    // IBV_WC_REM_ABORT_ERR
	WCInvEECNErr                     // IBV_WC_INV_EECN_ERR
	WCInvEECStateErr                 // IBV_WC_INV_EEC_STATE_ERR
	WCFatalErr                       // IBV_WC_FATAL_ERR
	WCRespTimeoutErr                 // IBV_WC_RESP_TIMEOUT_ERR
	WCGeneralErr                     // IBV_WC_GENERAL_ERR
)

// String returns the text of ibv_wc_status_str.
func (s WCStatus) String() string {
	return enumText(int(s), []string{"success", "local length error", "local QP operation error",
		"local EE context operation error", "local protection error", "Work Request Flushed Error",
		"memory management operation error", "bad response error",
		"local access error", "remote invalid request error", "remote access error", "remote operation error",
		"transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error",
		"remote invalid RD request",
		"aborted error", "invalid EE context number", "invalid EE context state", "fatal error",
		"response timeout error",
		"general error"}, "WCStatus")
}

// Error returns the text of String. A status other than [WCSuccess] is an error; compare it with
// errors.Is.
func (s WCStatus) Error() string { return s.String() }

// WCOpcode is the operation of a completed request. It is valid on success only.
type WCOpcode uint8

const (
	WCSend            WCOpcode = 0   // IBV_WC_SEND
	WCRDMAWrite       WCOpcode = 1   // IBV_WC_RDMA_WRITE
	WCRDMARead        WCOpcode = 2   // IBV_WC_RDMA_READ
	WCCompSwap        WCOpcode = 3   // IBV_WC_COMP_SWAP
	WCFetchAdd        WCOpcode = 4   // IBV_WC_FETCH_ADD
	WCBindMW          WCOpcode = 5   // IBV_WC_BIND_MW
	WCLocalInv        WCOpcode = 6   // IBV_WC_LOCAL_INV
	WCAtomicWrite     WCOpcode = 9   // IBV_WC_ATOMIC_WRITE
	WCMaskedCompSwap  WCOpcode = 11  // IB_WC_MASKED_COMP_SWAP of the kernel's <rdma/ib_verbs.h>
	WCMaskedFetchAdd  WCOpcode = 12  // IB_WC_MASKED_FETCH_ADD of the kernel's <rdma/ib_verbs.h>
	WCImmData         WCOpcode = 64  // our own: a WRImmData was sent
	WCRecv            WCOpcode = 128 // IBV_WC_RECV; every receive has this bit
	WCRecvRDMAWithImm WCOpcode = 129 // IBV_WC_RECV_RDMA_WITH_IMM
	WCRecvImmData     WCOpcode = 192 // our own: Immediate Data that did not follow a Write
)

// String returns the C name without IBV_WC_.
func (o WCOpcode) String() string {
	switch o {
	case WCImmData:
		return "IMM_DATA"
	case WCRecv:
		return "RECV"
	case WCRecvRDMAWithImm:
		return "RECV_RDMA_WITH_IMM"
	case WCRecvImmData:
		return "RECV_IMM_DATA"
	}
	return enumText(int(o), []string{"SEND", "RDMA_WRITE", "RDMA_READ", "COMP_SWAP", "FETCH_ADD", "BIND_MW",
		"LOCAL_INV", "TSO", "FLUSH", "ATOMIC_WRITE", "REG_MR", "MASKED_COMP_SWAP", "MASKED_FETCH_ADD"}, "WCOpcode")
}

// WCFlags qualify a successful completion.
type WCFlags uint8

const (
	WCGRH     WCFlags = 1 << 0 // IBV_WC_GRH: the first GRHLen bytes received are a Global Routing Header
	WCWithImm WCFlags = 1 << 1 // IBV_WC_WITH_IMM: Imm is valid, and Imm64 where the fabric carries 8 bytes
	WCWithInv WCFlags = 1 << 3 // IBV_WC_WITH_INV: InvalidatedRKey is valid
)

// String lists the flags by their C names without IBV_WC_.
func (f WCFlags) String() string {
	return flagText(uint64(f), []string{"GRH", "WITH_IMM", "IP_CSUM_OK", "WITH_INV"})
}

// EventType is the kind of an asynchronous event; ibv_get_async_event(3) describes each.
type EventType uint8

const (
	EventCQErr            EventType = iota // IBV_EVENT_CQ_ERR: a CQ overflowed
	EventQPFatal                           // IBV_EVENT_QP_FATAL
	EventQPReqErr                          // IBV_EVENT_QP_REQ_ERR
	EventQPAccessErr                       // IBV_EVENT_QP_ACCESS_ERR
	EventCommEst                           // IBV_EVENT_COMM_EST
	EventSQDrained                         // IBV_EVENT_SQ_DRAINED
	EventPathMig                           // IBV_EVENT_PATH_MIG
	EventPathMigErr                        // IBV_EVENT_PATH_MIG_ERR
	EventDeviceFatal                       // IBV_EVENT_DEVICE_FATAL
	EventPortActive                        // IBV_EVENT_PORT_ACTIVE
	EventPortErr                           // IBV_EVENT_PORT_ERR
	EventLIDChange                         // IBV_EVENT_LID_CHANGE
	EventPKeyChange                        // IBV_EVENT_PKEY_CHANGE
	EventSMChange                          // IBV_EVENT_SM_CHANGE
	EventSRQErr                            // IBV_EVENT_SRQ_ERR
	EventSRQLimitReached                   // IBV_EVENT_SRQ_LIMIT_REACHED
	EventQPLastWQEReached                  // IBV_EVENT_QP_LAST_WQE_REACHED
	EventClientReregister                  // IBV_EVENT_CLIENT_REREGISTER
	EventGIDChange                         // IBV_EVENT_GID_CHANGE
)

// String returns the text of ibv_event_type_str.
func (e EventType) String() string {
	return enumText(int(e), []string{"CQ error", "local work queue catastrophic error",
		"invalid request local work queue error", "local access violation work queue error",
		"communication established", "send queue drained", "path migrated",
		"path migration request error", "local catastrophic error", "port active", "port error", "LID change",
		"P_Key change",
		"SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached", "client reregistration",
		"GID table change"}, "EventType")
}

// enumText returns names[v], or kind(v) if v has no name.
func enumText(v int, names []string, kind string) string {
	if v >= 0 && v < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}

// flagText joins the names of the bits set in v with "|"; unnamed bits are shown in hexadecimal.
func flagText(v uint64, names []string) string {
	if v == 0 {
		return "0"
	}
	var parts []string
	for i, name := range names {
		if v&(1<<i) != 0 && name != "" {
			parts = append(parts, name)
			v &^= 1 << i
		}
	}
	if v != 0 {
		parts = append(parts, fmt.Sprintf("0x%x", v))
	}
	return strings.Join(parts, "|")
}

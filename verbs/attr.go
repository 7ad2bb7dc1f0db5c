// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"strconv"
	"strings"
)

// GUID is a 64-bit globally unique identifier, as a number in host byte order.
type GUID uint64

// String formats the GUID as ibv_devinfo does, for example "0011:2233:4455:6677".
func (g GUID) String() string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

// MarshalText implements encoding.TextMarshaler, using String.
func (g GUID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It accepts the format of String.
func (g *GUID) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(strings.ReplaceAll(string(text), ":", ""), 16, 64)
	if err != nil || GUID(v).String() != strings.ToLower(string(text)) {
		return invalid("GUID %q", text)
	}
	*g = GUID(v)
	return nil
}

// DeviceAttr holds the attributes of a device (ibv_query_device(3)); the fields are those of struct
// ibv_device_attr. Limits apply to all contexts of the device together.
type DeviceAttr struct {
	FwVer           string         // fw_ver
	NodeGUID        GUID           // node_guid
	SysImageGUID    GUID           // sys_image_guid
	MaxMRSize       uint64         // max_mr_size, bytes
	PageSizeCap     uint64         // page_size_cap, bit n = pages of 1<<n bytes
	VendorID        uint32         // vendor_id
	VendorPartID    uint32         // vendor_part_id
	HWVer           uint32         // hw_ver
	MaxQP           int            // max_qp
	MaxQPWR         int            // max_qp_wr: requests in one queue
	DeviceCapFlags  DeviceCapFlags // device_cap_flags
	MaxSGE          int            // max_sge: elements in one request
	MaxSGERd        int            // max_sge_rd: elements in one Read
	MaxCQ           int            // max_cq
	MaxCQE          int            // max_cqe: entries in one CQ
	MaxMR           int            // max_mr
	MaxPD           int            // max_pd
	MaxQPRdAtom     int            // max_qp_rd_atom: Reads and atomics in progress per QP as responder
	MaxResRdAtom    int            // max_res_rd_atom: the same for all QPs together
	MaxQPInitRdAtom int            // max_qp_init_rd_atom: Reads and atomics in progress per QP as requester
	AtomicCap       AtomicCap      // atomic_cap
	MaxMW           int            // max_mw
	MaxAH           int            // max_ah
	MaxSRQ          int            // max_srq
	MaxSRQWR        int            // max_srq_wr
	MaxSRQSGE       int            // max_srq_sge
	MaxPKeys        int            // max_pkeys
	LocalCAAckDelay uint8          // local_ca_ack_delay: the device acknowledges within 4.096 us * 2^LocalCAAckDelay
	PhysPortCnt     int            // phys_port_cnt
	MaxInlineData   int            // bytes in one inline request; not in ibv_device_attr: in C, QP creation returns it
	NumCompVectors  int            // num_comp_vectors of struct ibv_context: see CQConfig.CompVector

	// Attributes of other QP types, of multicast and of older kernels.
	MaxEERdAtom           int // max_ee_rd_atom
	MaxEEInitRdAtom       int // max_ee_init_rd_atom
	MaxEE                 int // max_ee
	MaxRDD                int // max_rdd
	MaxRawIPv6QP          int // max_raw_ipv6_qp
	MaxRawEthyQP          int // max_raw_ethy_qp
	MaxMcastGrp           int // max_mcast_grp: multicast groups
	MaxMcastQPAttach      int // max_mcast_qp_attach: QPs per multicast group
	MaxTotalMcastQPAttach int // max_total_mcast_qp_attach: QPs attached to all groups
	MaxFMR                int // max_fmr
	MaxMapPerFMR          int // max_map_per_fmr
}

// PortAttr holds the attributes of a port (ibv_query_port(3)); the fields are those of struct
// ibv_port_attr.
type PortAttr struct {
	State       PortState // state
	MaxMTU      MTU       // max_mtu
	ActiveMTU   MTU       // active_mtu
	GIDTblLen   int       // gid_tbl_len
	MaxMsgSz    uint32    // max_msg_sz, bytes
	PKeyTblLen  int       // pkey_tbl_len
	LID         uint16    // lid
	SMLID       uint16    // sm_lid
	LMC         uint8     // lmc: number of low bits of the LID that select a path to the port
	ActiveWidth uint8     // active_width: a code, see ibv_devinfo
	ActiveSpeed uint8     // active_speed: a code, see ibv_devinfo
	PhysState   uint8     // phys_state: a code, see ibv_devinfo
	LinkLayer   LinkLayer // link_layer

	PortCapFlags  uint32 // port_cap_flags
	PortCapFlags2 uint16 // port_cap_flags2
	BadPKeyCntr   uint32 // bad_pkey_cntr: packets with a wrong partition key
	QKeyViolCntr  uint32 // qkey_viol_cntr: packets with a wrong Q_Key
	MaxVLNum      uint8  // max_vl_num: a code, see ibv_devinfo
	SMSL          uint8  // sm_sl: service level for reaching the subnet manager
	SubnetTimeout uint8  // subnet_timeout: the subnet delays a packet by at most 4.096 us * 2^SubnetTimeout
	InitTypeReply uint8  // init_type_reply
	Flags         uint8  // flags
}

// QPCap holds the capacities of a queue pair (struct ibv_qp_cap). In [QPConfig], zero fields select
// the defaults.
type QPCap struct {
	MaxSendWR     int // max_send_wr: requests in the send queue
	MaxRecvWR     int // max_recv_wr: requests in the receive queue
	MaxSendSGE    int // max_send_sge: elements per send request
	MaxRecvSGE    int // max_recv_sge: elements per receive
	MaxInlineData int // max_inline_data, bytes
}

// QPAttr holds the attributes of a QP (struct ibv_qp_attr, ibv_modify_qp(3)). All numbers are in
// host byte order. A [QPAttrMask] selects those that [QP.Modify] sets.
type QPAttr struct {
	State     QPState // qp_state
	CurState  QPState // cur_qp_state: the state that the program assumes the QP to be in
	PathMTU   MTU     // path_mtu: RC and UC
	RQPSN     uint32  // rq_psn: sequence number of the first packet received, 24 bits
	SQPSN     uint32  // sq_psn: sequence number of the first packet sent, 24 bits
	DestQPNum uint32  // dest_qp_num: the peer's QP, 24 bits; RC and UC
	// qp_access_flags: the peer's access rights on this QP; bits without a name here are left to
	// the device to check
	AccessFlags     AccessFlags
	PKeyIndex       uint16 // pkey_index: index in the port's partition key table
	PortNum         uint8  // port_num, from 1
	MaxRdAtomic     int    // max_rd_atomic: Reads and atomics in progress as requester (ORD)
	MaxDestRdAtomic int    // max_dest_rd_atomic: the same as responder (IRD)
	// min_rnr_timer: how long the peer waits before it retries when no receive is posted: 1 = 10 us
	// up to 31 = 491.52 ms, 0 = 655.36 ms
	MinRNRTimer    uint8
	Timeout        uint8  // timeout: packets are retransmitted after 4.096 us * 2^Timeout, up to 31; 0 = never
	RetryCnt       uint8  // retry_cnt: number of such retransmissions, 0 to 7
	RNRRetry       uint8  // rnr_retry: retries when no receive is posted, 0 to 6; 7 = unlimited
	QKey           uint32 // qkey: UD
	AH             AHAttr // ah_attr: the path to the peer, RC and UC
	SQDAsyncNotify bool   // en_sqd_async_notify: send an EventSQDrained when the send queue has drained
	Cap            QPCap  // cap: set by Query only; cannot be changed
}

// QPAttrMask selects fields of [QPAttr].
type QPAttrMask uint32

const (
	QPAttrState           QPAttrMask = 1 << 0  // IBV_QP_STATE
	QPAttrCurState        QPAttrMask = 1 << 1  // IBV_QP_CUR_STATE
	QPAttrSQDAsyncNotify  QPAttrMask = 1 << 2  // IBV_QP_EN_SQD_ASYNC_NOTIFY
	QPAttrAccessFlags     QPAttrMask = 1 << 3  // IBV_QP_ACCESS_FLAGS
	QPAttrPKeyIndex       QPAttrMask = 1 << 4  // IBV_QP_PKEY_INDEX
	QPAttrPort            QPAttrMask = 1 << 5  // IBV_QP_PORT
	QPAttrQKey            QPAttrMask = 1 << 6  // IBV_QP_QKEY
	QPAttrAV              QPAttrMask = 1 << 7  // IBV_QP_AV
	QPAttrPathMTU         QPAttrMask = 1 << 8  // IBV_QP_PATH_MTU
	QPAttrTimeout         QPAttrMask = 1 << 9  // IBV_QP_TIMEOUT
	QPAttrRetryCnt        QPAttrMask = 1 << 10 // IBV_QP_RETRY_CNT
	QPAttrRNRRetry        QPAttrMask = 1 << 11 // IBV_QP_RNR_RETRY
	QPAttrRQPSN           QPAttrMask = 1 << 12 // IBV_QP_RQ_PSN
	QPAttrMaxRdAtomic     QPAttrMask = 1 << 13 // IBV_QP_MAX_QP_RD_ATOMIC
	QPAttrMinRNRTimer     QPAttrMask = 1 << 15 // IBV_QP_MIN_RNR_TIMER
	QPAttrSQPSN           QPAttrMask = 1 << 16 // IBV_QP_SQ_PSN
	QPAttrMaxDestRdAtomic QPAttrMask = 1 << 17 // IBV_QP_MAX_DEST_RD_ATOMIC
	QPAttrDestQPN         QPAttrMask = 1 << 20 // IBV_QP_DEST_QPN
)

// String lists the bits by their C names without IBV_QP_.
func (m QPAttrMask) String() string {
	return flagText(uint64(m),
		[]string{"STATE", "CUR_STATE", "EN_SQD_ASYNC_NOTIFY", "ACCESS_FLAGS", "PKEY_INDEX", "PORT", "QKEY", "AV",
			"PATH_MTU", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "RQ_PSN", "MAX_QP_RD_ATOMIC", "ALT_PATH", "MIN_RNR_TIMER",
			"SQ_PSN", "MAX_DEST_RD_ATOMIC", "PATH_MIG_STATE", "CAP", "DEST_QPN"})
}

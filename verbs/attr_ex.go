// SPDX-License-Identifier: BSD-3-Clause

package verbs

// DeviceAttrEx has the extended attributes of a device (ibv_query_device_ex(3)); the fields are
// those of struct ibv_device_attr_ex behind orig_attr, which is [DeviceAttr]. A device, library or
// kernel that does not know an attribute leaves it 0.
type DeviceAttrEx struct {
	ODP ODPCaps // odp_caps, xrc_odp_caps: on-demand paging, see AccessOnDemand

	// CompletionTimestampMask has the bits of a time stamp that are valid, 0 if completions have
	// none (completion_timestamp_mask).
	CompletionTimestampMask uint64
	HCACoreClock            uint64 // hca_core_clock: the frequency of the device's clock in kHz, 0 = none

	DeviceCapFlagsEx DeviceCapFlagsEx // device_cap_flags_ex: also bits that have no name here
	RawPacketCaps    uint32           // raw_packet_caps
	MaxWQTypeRQ      uint32           // max_wq_type_rq: receive work queues
	MaxDMSize        uint64           // max_dm_size: memory on the device, bytes

	TSO          TSOCaps          // tso_caps
	RSS          RSSCaps          // rss_caps
	PacketPacing PacketPacingCaps // packet_pacing_caps
	TagMatching  TagMatchingCaps  // tm_caps
	CQModeration CQModerationCaps // cq_mod_caps
	PCIAtomic    PCIAtomicCaps    // pci_atomic_caps
}

// ODPCaps says what a device can do with memory that is not pinned (struct ibv_odp_caps).
type ODPCaps struct {
	General    ODPGeneralCaps   // general_caps
	RC, UC, UD ODPTransportCaps // per_transport_caps
	XRC        ODPTransportCaps // xrc_odp_caps of struct ibv_device_attr_ex
}

// ODPGeneralCaps are the bits of on-demand paging that hold for the whole device.
type ODPGeneralCaps uint64

const (
	ODPSupport         ODPGeneralCaps = 1 << 0 // IBV_ODP_SUPPORT
	ODPSupportImplicit ODPGeneralCaps = 1 << 1 // IBV_ODP_SUPPORT_IMPLICIT: one region for the whole address space
)

// String lists the bits by the C names without IBV_ODP_.
func (c ODPGeneralCaps) String() string {
	return flagText(uint64(c), []string{"SUPPORT", "SUPPORT_IMPLICIT"})
}

// ODPTransportCaps are the operations of a service whose memory need not be pinned.
type ODPTransportCaps uint32

const (
	ODPSend        ODPTransportCaps = 1 << 0 // IBV_ODP_SUPPORT_SEND
	ODPRecv        ODPTransportCaps = 1 << 1 // IBV_ODP_SUPPORT_RECV
	ODPWrite       ODPTransportCaps = 1 << 2 // IBV_ODP_SUPPORT_WRITE
	ODPRead        ODPTransportCaps = 1 << 3 // IBV_ODP_SUPPORT_READ
	ODPAtomic      ODPTransportCaps = 1 << 4 // IBV_ODP_SUPPORT_ATOMIC
	ODPSRQRecv     ODPTransportCaps = 1 << 5 // IBV_ODP_SUPPORT_SRQ_RECV
	ODPFlush       ODPTransportCaps = 1 << 6 // IBV_ODP_SUPPORT_FLUSH
	ODPAtomicWrite ODPTransportCaps = 1 << 7 // IBV_ODP_SUPPORT_ATOMIC_WRITE
)

// String lists the bits by the C names without IBV_ODP_SUPPORT_.
func (c ODPTransportCaps) String() string {
	return flagText(uint64(c), []string{"SEND", "RECV", "WRITE", "READ", "ATOMIC", "SRQ_RECV", "FLUSH", "ATOMIC_WRITE"})
}

// DeviceCapFlagsEx are the 64 capability bits of [DeviceAttrEx]. The lower half has those of
// [DeviceCapFlags].
type DeviceCapFlagsEx uint64

const (
	DeviceRawScatterFCS   DeviceCapFlagsEx = 1 << 34 // IBV_DEVICE_RAW_SCATTER_FCS
	DevicePCIWriteEndPad  DeviceCapFlagsEx = 1 << 36 // IBV_DEVICE_PCI_WRITE_END_PADDING
	DeviceFlushGlobal     DeviceCapFlagsEx = 1 << 38 // IB_UVERBS_DEVICE_FLUSH_GLOBAL of <rdma/ib_user_verbs.h>
	DeviceFlushPersistent DeviceCapFlagsEx = 1 << 39 // IB_UVERBS_DEVICE_FLUSH_PERSISTENT of <rdma/ib_user_verbs.h>
	DeviceAtomicWrite     DeviceCapFlagsEx = 1 << 40 // IB_UVERBS_DEVICE_ATOMIC_WRITE of <rdma/ib_user_verbs.h>
)

// TSOCaps says what a device does of TCP segmentation (struct ibv_tso_caps).
type TSOCaps struct {
	MaxTSO        uint32 // max_tso, bytes
	SupportedQPTs uint32 // supported_qpts, bit n = QPs of type n
}

// RSSCaps says how a device spreads packets over receive work queues (struct ibv_rss_caps).
type RSSCaps struct {
	SupportedQPTs              uint32 // supported_qpts, bit n = QPs of type n
	MaxRWQIndirectionTables    uint32 // max_rwq_indirection_tables
	MaxRWQIndirectionTableSize uint32 // max_rwq_indirection_table_size
	RXHashFieldsMask           uint64 // rx_hash_fields_mask
	RXHashFunction             uint8  // rx_hash_function
}

// PacketPacingCaps says to which rates a device can limit a QP (struct ibv_packet_pacing_caps).
type PacketPacingCaps struct {
	QPRateLimitMin uint32 // qp_rate_limit_min, kbit/s
	QPRateLimitMax uint32 // qp_rate_limit_max, kbit/s
	SupportedQPTs  uint32 // supported_qpts, bit n = QPs of type n
}

// TagMatchingCaps says what a device does of tag matching (struct ibv_tm_caps).
type TagMatchingCaps struct {
	MaxRndvHdrSize uint32 // max_rndv_hdr_size, bytes
	MaxNumTags     uint32 // max_num_tags
	Flags          uint32 // flags: bit 0 = RC
	MaxOps         uint32 // max_ops
	MaxSGE         uint32 // max_sge
}

// CQModerationCaps says how long a device can hold back completion events (struct
// ibv_cq_moderation_caps).
type CQModerationCaps struct {
	MaxCQCount  uint16 // max_cq_count, completions
	MaxCQPeriod uint16 // max_cq_period, microseconds
}

// PCIAtomicCaps has the sizes of the atomics that a device does over PCI (struct
// ibv_pci_atomic_caps): bit 0 = 4 bytes, bit 1 = 8, bit 2 = 16.
type PCIAtomicCaps struct {
	FetchAdd, Swap, CompareSwap uint16
}

// QueryDeviceEx returns the device's extended attributes (ibv_query_device_ex(3)). They are all 0
// for a device that has none.
func (c *Context) QueryDeviceEx() (DeviceAttrEx, error) {
	const op = "QueryDeviceEx"
	if err := c.enter(op); err != nil {
		return DeviceAttrEx{}, err
	}
	defer c.node.Exit()
	q, ok := Ability[ProviderExtendedQuerier](c.p)
	if !ok {
		return DeviceAttrEx{}, nil
	}
	attr, err := q.QueryDeviceEx()
	return attr, opError(op, c.dev.Name(), err)
}

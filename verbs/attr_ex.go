// SPDX-License-Identifier: BSD-3-Clause

package verbs

// DeviceAttrEx holds the extended attributes of a device (ibv_query_device_ex(3)); the fields are
// those of struct ibv_device_attr_ex after orig_attr, which is [DeviceAttr]. Attributes unknown to
// the device, library or kernel are 0.
type DeviceAttrEx struct {
	ODP ODPCaps // odp_caps, xrc_odp_caps: on-demand paging, see AccessOnDemand

	// CompletionTimestampMask is the mask of valid bits in a completion's timestamp, 0 if
	// completions have none (completion_timestamp_mask).
	CompletionTimestampMask uint64
	HCACoreClock            uint64 // hca_core_clock: the frequency of the device's clock in kHz, 0 = none

	DeviceCapFlagsEx DeviceCapFlagsEx // device_cap_flags_ex, including bits without a name here
	RawPacketCaps    uint32           // raw_packet_caps
	MaxWQTypeRQ      uint32           // max_wq_type_rq: number of receive work queues
	MaxDMSize        uint64           // max_dm_size: device memory, bytes

	TSO          TSOCaps          // tso_caps
	RSS          RSSCaps          // rss_caps
	PacketPacing PacketPacingCaps // packet_pacing_caps
	TagMatching  TagMatchingCaps  // tm_caps
	CQModeration CQModerationCaps // cq_mod_caps
	PCIAtomic    PCIAtomicCaps    // pci_atomic_caps
}

// ODPCaps describes a device's support for on-demand paging (struct ibv_odp_caps).
type ODPCaps struct {
	General    ODPGeneralCaps   // general_caps
	RC, UC, UD ODPTransportCaps // per_transport_caps
	XRC        ODPTransportCaps // xrc_odp_caps of struct ibv_device_attr_ex
}

// ODPGeneralCaps are the on-demand paging capabilities of the device as a whole.
type ODPGeneralCaps uint64

const (
	ODPSupport         ODPGeneralCaps = 1 << 0 // IBV_ODP_SUPPORT
	ODPSupportImplicit ODPGeneralCaps = 1 << 1 // IBV_ODP_SUPPORT_IMPLICIT: one region for the whole address space
)

// String lists the bits by their C names without IBV_ODP_.
func (c ODPGeneralCaps) String() string {
	return flagText(uint64(c), []string{"SUPPORT", "SUPPORT_IMPLICIT"})
}

// ODPTransportCaps are the operations of a transport service that work on unpinned memory.
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

// String lists the bits by their C names without IBV_ODP_SUPPORT_.
func (c ODPTransportCaps) String() string {
	return flagText(uint64(c), []string{"SEND", "RECV", "WRITE", "READ", "ATOMIC", "SRQ_RECV", "FLUSH", "ATOMIC_WRITE"})
}

// DeviceCapFlagsEx are the 64 capability bits of [DeviceAttrEx]. The low 32 are those of
// [DeviceCapFlags].
type DeviceCapFlagsEx uint64

const (
	DeviceRawScatterFCS   DeviceCapFlagsEx = 1 << 34 // IBV_DEVICE_RAW_SCATTER_FCS
	DevicePCIWriteEndPad  DeviceCapFlagsEx = 1 << 36 // IBV_DEVICE_PCI_WRITE_END_PADDING
	DeviceFlushGlobal     DeviceCapFlagsEx = 1 << 38 // IB_UVERBS_DEVICE_FLUSH_GLOBAL of <rdma/ib_user_verbs.h>
	DeviceFlushPersistent DeviceCapFlagsEx = 1 << 39 // IB_UVERBS_DEVICE_FLUSH_PERSISTENT of <rdma/ib_user_verbs.h>
	DeviceAtomicWrite     DeviceCapFlagsEx = 1 << 40 // IB_UVERBS_DEVICE_ATOMIC_WRITE of <rdma/ib_user_verbs.h>
)

// TSOCaps describes a device's TCP segmentation offload (struct ibv_tso_caps).
type TSOCaps struct {
	MaxTSO        uint32 // max_tso, bytes
	SupportedQPTs uint32 // supported_qpts, bit n = QPs of type n
}

// RSSCaps describes how a device can spread packets over receive work queues (struct ibv_rss_caps).
type RSSCaps struct {
	SupportedQPTs              uint32 // supported_qpts, bit n = QPs of type n
	MaxRWQIndirectionTables    uint32 // max_rwq_indirection_tables
	MaxRWQIndirectionTableSize uint32 // max_rwq_indirection_table_size
	RXHashFieldsMask           uint64 // rx_hash_fields_mask
	RXHashFunction             uint8  // rx_hash_function
}

// PacketPacingCaps describes the rates to which a device can limit a QP (struct
// ibv_packet_pacing_caps).
type PacketPacingCaps struct {
	QPRateLimitMin uint32 // qp_rate_limit_min, kbit/s
	QPRateLimitMax uint32 // qp_rate_limit_max, kbit/s
	SupportedQPTs  uint32 // supported_qpts, bit n = QPs of type n
}

// TagMatchingCaps describes a device's tag matching (struct ibv_tm_caps).
type TagMatchingCaps struct {
	MaxRndvHdrSize uint32 // max_rndv_hdr_size, bytes
	MaxNumTags     uint32 // max_num_tags
	Flags          uint32 // flags: bit 0 = RC
	MaxOps         uint32 // max_ops
	MaxSGE         uint32 // max_sge
}

// CQModerationCaps describes how far a device can delay completion events (struct
// ibv_cq_moderation_caps).
type CQModerationCaps struct {
	MaxCQCount  uint16 // max_cq_count, completions
	MaxCQPeriod uint16 // max_cq_period, microseconds
}

// PCIAtomicCaps holds the sizes of atomics that a device can perform over PCI (struct
// ibv_pci_atomic_caps): bit 0 = 4 bytes, bit 1 = 8, bit 2 = 16.
type PCIAtomicCaps struct {
	FetchAdd, Swap, CompareSwap uint16
}

// QueryDeviceEx returns the device's extended attributes (ibv_query_device_ex(3)). All are 0 if the
// device has none.
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

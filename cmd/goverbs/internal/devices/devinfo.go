// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// devinfo formats attributes as ibv_devinfo -v does (rdma-core, libibverbs/examples): the same
// lines in the same order, with the same tabs. docs/command.md lists the differences. What only
// goverbs prints follows each device in a separate section.
type devinfo struct{ strings.Builder }

// tabWidth is the distance of the tab stops that align the values.
const tabWidth = 8

// The columns where values begin: of a device, of its groups of attributes, and of a port.
const (
	deviceColumn = 40
	portColumn   = 48
)

// field writes a line: indent tabs, the name, and the value in the given column.
func (d *devinfo) field(indent, column int, name, format string, args ...any) {
	at := tabWidth*indent + len(name) + 1
	tabs := max(1, (column-at+tabWidth-1)/tabWidth)
	fmt.Fprintf(d, "%s%s:%s%s\n", strings.Repeat("\t", indent), name, strings.Repeat("\t", tabs),
		fmt.Sprintf(format, args...))
}

// named writes the names of the bits in a set, one per line, and the unnamed rest as a number.
func (d *devinfo) named(set uint64, names []string) {
	const indent = "\t\t\t\t\t"
	for i, name := range names {
		if name != "" && set&(1<<i) != 0 {
			fmt.Fprintf(d, "%s%s\n", indent, name)
			set &^= 1 << i
		}
	}
	if set != 0 {
		fmt.Fprintf(d, "%sUnknown flags: 0x%X\n", indent, set)
	}
}

// The names of bits, indexed by bit number.
var (
	capFlagNames = []string{"RESIZE_MAX_WR", "BAD_PKEY_CNTR", "BAD_QKEY_CNTR", "RAW_MULTI", "AUTO_PATH_MIG",
		"CHANGE_PHY_PORT",
		"UD_AV_PORT_ENFORCE", "CURR_QP_STATE_MOD", "SHUTDOWN_PORT", "INIT_TYPE", "PORT_ACTIVE_EVENT", "SYS_IMAGE_GUID",
		"RC_RNR_NAK_GEN", "SRQ_RESIZE", "N_NOTIFY_CQ", 17: "MEM_WINDOW", 18: "UD_IP_CSUM", 20: "XRC",
		21: "MEM_MGT_EXTENSIONS",
		23: "MEM_WINDOW_TYPE_2A", 24: "MEM_WINDOW_TYPE_2B", 25: "RC_IP_CSUM", 26: "RAW_IP_CSUM",
		29: "MANAGED_FLOW_STEERING"}
	capFlagExNames  = []string{34: "RAW_SCATTER_FCS", 36: "PCI_WRITE_END_PADDING", 41: "CC_DMA_BOUNCE"}
	odpNames        = []string{"ODP_SUPPORT", "ODP_SUPPORT_IMPLICIT"}
	odpServiceNames = []string{"SUPPORT_SEND", "SUPPORT_RECV", "SUPPORT_WRITE", "SUPPORT_READ", "SUPPORT_ATOMIC",
		"SUPPORT_SRQ", "SUPPORT_FLUSH", "SUPPORT_ATOMIC_WRITE"}
	rawPacketNames   = []string{"C-VLAN stripping offload", "Scatter FCS offload", "IP csum offload", "Delay drop"}
	tagMatchingNames = []string{"IBV_TM_CAP_RC"}
	// Here the bit numbers are QP types: those of ibv_qp_type that can have these abilities.
	packetQPNames = []string{4: "SUPPORT_UD", 8: "SUPPORT_RAW_PACKET"}
	pacedQPNames  = []string{2: "SUPPORT_RC", 4: "SUPPORT_UD", 8: "SUPPORT_RAW_PACKET"}
)

// byCode returns the text of a code, or other if it has none.
func byCode[C ~uint8](code C, texts []string, other string) string {
	if int(code) < len(texts) && texts[code] != "" {
		return texts[code]
	}
	return other
}

// byBit returns the text of a code that is a single bit.
func byBit(code uint8, texts []string, other string) string {
	if bits.OnesCount8(code) != 1 {
		return other
	}
	return byCode(uint8(bits.TrailingZeros8(code)), texts, other)
}

// The texts of codes.
var (
	portStates = []string{verbs.PortDown: "PORT_DOWN", verbs.PortInit: "PORT_INIT", verbs.PortArmed: "PORT_ARMED",
		verbs.PortActive: "PORT_ACTIVE"}
	physStates = []string{1: "SLEEP", 2: "POLLING", 3: "DISABLED", 4: "PORT_CONFIGURATION TRAINNING", 5: "LINK_UP",
		6: "LINK_ERROR_RECOVERY", 7: "PHY TEST"}
	linkLayers = []string{"Unspecified", "InfiniBand", "Ethernet"}
	mtus       = []string{1: "256", 2: "512", 3: "1024", 4: "2048", 5: "4096"}
	lanes      = []string{1: "1", 2: "2", 3: "4", 4: "8", 5: "15"}
	widths     = []string{"1", "4", "8", "12", "2"}
	speeds     = []string{"2.5 Gbps", "5.0 Gbps", "10.0 Gbps", "10.0 Gbps", "14.0 Gbps", "25.0 Gbps", "50.0 Gbps",
		"100.0 Gbps"}
	atomics    = []string{"ATOMIC_NONE", "ATOMIC_HCA", "ATOMIC_GLOB"}
	transports = []string{"InfiniBand", "iWARP", "usNIC", "usNIC UDP", "unspecified"}
)

// device writes the attributes of a device.
func (d *devinfo) device(info verbs.DeviceInfo, board string, a verbs.DeviceAttr, ex verbs.DeviceAttrEx) {
	field := func(name, format string, args ...any) { d.field(1, deviceColumn, name, format, args...) }
	number := func(name string, n int) { field(name, "%d", n) }
	fmt.Fprintf(d, "hca_id:\t%s\n", info.Name)
	field("transport", "%s (%d)", byCode(uint8(info.Transport), transports, "invalid transport"), info.Transport)
	if a.FwVer != "" {
		field("fw_ver", "%s", a.FwVer)
	}
	field("node_guid", "%v", a.NodeGUID)
	field("sys_image_guid", "%v", a.SysImageGUID)
	field("vendor_id", "0x%04x", a.VendorID)
	field("vendor_part_id", "%d", int32(a.VendorPartID))
	field("hw_ver", "0x%X", a.HWVer)
	if board != "" {
		field("board_id", "%s", board)
	}
	number("phys_port_cnt", a.PhysPortCnt)
	field("max_mr_size", "0x%x", a.MaxMRSize)
	field("page_size_cap", "0x%x", a.PageSizeCap)
	number("max_qp", a.MaxQP)
	number("max_qp_wr", a.MaxQPWR)
	field("device_cap_flags", "0x%08x", uint32(a.DeviceCapFlags))
	d.named(uint64(a.DeviceCapFlags), capFlagNames)
	number("max_sge", a.MaxSGE)
	number("max_sge_rd", a.MaxSGERd)
	number("max_cq", a.MaxCQ)
	number("max_cqe", a.MaxCQE)
	number("max_mr", a.MaxMR)
	number("max_pd", a.MaxPD)
	number("max_qp_rd_atom", a.MaxQPRdAtom)
	number("max_ee_rd_atom", a.MaxEERdAtom)
	number("max_res_rd_atom", a.MaxResRdAtom)
	number("max_qp_init_rd_atom", a.MaxQPInitRdAtom)
	number("max_ee_init_rd_atom", a.MaxEEInitRdAtom)
	field("atomic_cap", "%s (%d)", byCode(a.AtomicCap, atomics, "invalid atomic capability"), uint8(a.AtomicCap))
	number("max_ee", a.MaxEE)
	number("max_rdd", a.MaxRDD)
	number("max_mw", a.MaxMW)
	number("max_raw_ipv6_qp", a.MaxRawIPv6QP)
	number("max_raw_ethy_qp", a.MaxRawEthyQP)
	number("max_mcast_grp", a.MaxMcastGrp)
	number("max_mcast_qp_attach", a.MaxMcastQPAttach)
	number("max_total_mcast_qp_attach", a.MaxTotalMcastQPAttach)
	number("max_ah", a.MaxAH)
	number("max_fmr", a.MaxFMR)
	if a.MaxFMR != 0 {
		number("max_map_per_fmr", a.MaxMapPerFMR)
	}
	number("max_srq", a.MaxSRQ)
	if a.MaxSRQ != 0 {
		number("max_srq_wr", a.MaxSRQWR)
		number("max_srq_sge", a.MaxSRQSGE)
	}
	number("max_pkeys", a.MaxPKeys)
	number("local_ca_ack_delay", int(a.LocalCAAckDelay))
	d.extended(ex)
	number("num_comp_vectors", a.NumCompVectors)
}

// extended writes the extended attributes.
func (d *devinfo) extended(a verbs.DeviceAttrEx) {
	const groupColumn, pacingColumn, tsoColumn, rssColumn = 32, 40, 48, 64
	title := func(indent int, name string) { fmt.Fprintf(d, "%s%s:\n", strings.Repeat("\t", indent), name) }
	field := func(name, format string, args ...any) { d.field(1, deviceColumn, name, format, args...) }
	title(1, "general_odp_caps")
	d.named(uint64(a.ODP.General), odpNames)
	for _, service := range []struct {
		name string
		caps verbs.ODPTransportCaps
	}{{"rc_odp_caps", a.ODP.RC}, {"uc_odp_caps", a.ODP.UC}, {"ud_odp_caps", a.ODP.UD}, {"xrc_odp_caps", a.ODP.XRC}} {
		title(1, service.name)
		if service.caps == 0 {
			d.WriteString("\t\t\t\t\tNO SUPPORT\n")
		}
		d.named(uint64(service.caps), odpServiceNames)
	}
	if a.CompletionTimestampMask != 0 {
		d.field(1, 56, "completion timestamp_mask", "0x%016x", a.CompletionTimestampMask)
	} else {
		d.WriteString("\tcompletion_timestamp_mask not supported\n")
	}
	if a.HCACoreClock != 0 {
		field("hca_core_clock", "%dkHZ", a.HCACoreClock)
	} else {
		d.WriteString("\tcore clock not supported\n")
	}
	if a.RawPacketCaps != 0 {
		title(1, "raw packet caps")
		d.named(uint64(a.RawPacketCaps&0xf), rawPacketNames)
	}
	field("device_cap_flags_ex", "0x%X", uint64(a.DeviceCapFlagsEx))
	d.named(uint64(a.DeviceCapFlagsEx)>>32<<32, capFlagExNames)

	title(1, "tso_caps")
	d.field(2, tsoColumn, "max_tso", "%d", int32(a.TSO.MaxTSO))
	if a.TSO.MaxTSO != 0 {
		title(2, "supported_qp")
		d.qps(a.TSO.SupportedQPTs, packetQPNames)
	}
	title(1, "rss_caps")
	d.field(2, rssColumn, "max_rwq_indirection_tables", "%d", a.RSS.MaxRWQIndirectionTables)
	d.field(2, rssColumn, "max_rwq_indirection_table_size", "%d", a.RSS.MaxRWQIndirectionTableSize)
	d.field(2, rssColumn, "rx_hash_function", "0x%x", a.RSS.RXHashFunction)
	d.field(2, rssColumn, "rx_hash_fields_mask", "0x%X", a.RSS.RXHashFieldsMask)
	if a.RSS.SupportedQPTs != 0 {
		title(2, "supported_qp")
		d.qps(a.RSS.SupportedQPTs, packetQPNames)
	}
	field("max_wq_type_rq", "%d", a.MaxWQTypeRQ)
	title(1, "packet_pacing_caps")
	d.field(2, pacingColumn, "qp_rate_limit_min", "%dkbps", a.PacketPacing.QPRateLimitMin)
	d.field(2, pacingColumn, "qp_rate_limit_max", "%dkbps", a.PacketPacing.QPRateLimitMax)
	if a.PacketPacing.QPRateLimitMax != 0 {
		title(2, "supported_qp")
		d.qps(a.PacketPacing.SupportedQPTs, pacedQPNames)
	}
	if tm := a.TagMatching; tm.MaxNumTags != 0 {
		field("max_rndv_hdr_size", "%d", tm.MaxRndvHdrSize)
		field("max_num_tags", "%d", tm.MaxNumTags)
		field("max_ops", "%d", tm.MaxOps)
		field("max_sge", "%d", tm.MaxSGE)
		title(1, "flags")
		d.named(uint64(tm.Flags&1), tagMatchingNames)
	} else {
		d.WriteString("\ttag matching not supported\n")
	}
	if cq := a.CQModeration; cq.MaxCQCount != 0 && cq.MaxCQPeriod != 0 {
		d.WriteString("\n\tcq moderation caps:\n")
		d.field(2, groupColumn, "max_cq_count", "%d", cq.MaxCQCount)
		d.field(2, groupColumn, "max_cq_period", "%d us\n", cq.MaxCQPeriod)
	}
	if a.MaxDMSize != 0 {
		field("maximum available device memory", "%dBytes\n", a.MaxDMSize)
	}
}

// qps writes a set of QP types in ibv_devinfo's order: raw packets, datagrams, connections.
func (d *devinfo) qps(set uint32, names []string) {
	for _, typ := range []int{8, 4, 2} {
		if names[typ] != "" {
			d.named(uint64(set&(1<<typ)), names)
			set &^= 1 << typ
		}
	}
	d.named(uint64(set), nil)
}

// port writes the attributes of a port, and the entries of its GID table that are not empty.
func (d *devinfo) port(transport verbs.Transport, number int, a verbs.PortAttr, gids []verbs.GIDEntry) {
	field := func(name, format string, args ...any) { d.field(3, portColumn, name, format, args...) }
	fmt.Fprintf(d, "\t\tport:\t%d\n", number)
	field("state", "%s (%d)", byCode(a.State, portStates, "invalid state"), uint8(a.State))
	field("max_mtu", "%s (%d)", byCode(a.MaxMTU, mtus, "invalid MTU"), uint8(a.MaxMTU))
	field("active_mtu", "%s (%d)", byCode(a.ActiveMTU, mtus, "invalid MTU"), uint8(a.ActiveMTU))
	field("sm_lid", "%d", a.SMLID)
	field("port_lid", "%d", a.LID)
	field("port_lmc", "0x%02x", a.LMC)
	field("link_layer", "%s", byCode(a.LinkLayer, linkLayers, "Unknown"))
	field("max_msg_sz", "0x%x", a.MaxMsgSz)
	field("port_cap_flags", "0x%08x", a.PortCapFlags)
	field("port_cap_flags2", "0x%04x", a.PortCapFlags2)
	field("max_vl_num", "%s (%d)", byCode(a.MaxVLNum, lanes, "invalid value"), a.MaxVLNum)
	field("bad_pkey_cntr", "0x%x", a.BadPKeyCntr)
	field("qkey_viol_cntr", "0x%x", a.QKeyViolCntr)
	field("sm_sl", "%d", a.SMSL)
	field("pkey_tbl_len", "%d", a.PKeyTblLen)
	field("gid_tbl_len", "%d", a.GIDTblLen)
	field("subnet_timeout", "%d", a.SubnetTimeout)
	field("init_type_reply", "%d", a.InitTypeReply)
	field("active_width", "%sX (%d)", byBit(a.ActiveWidth, widths, "invalid width"), a.ActiveWidth)
	field("active_speed", "%s (%d)", byBit(a.ActiveSpeed, speeds, "invalid speed"), a.ActiveSpeed)
	if transport == verbs.TransportIB {
		field("phys_state", "%s (%d)", byCode(a.PhysState, physStates, "invalid physical state"), a.PhysState)
	}
	for _, g := range gids {
		if [8]byte(g.GID[8:]) == [8]byte{} { // as on an iWARP device
			continue
		}
		text, kind := g.GID.String(), ""
		if g.Type == verbs.GIDTypeRoCEv2 {
			text = netip.AddrFrom16(g.GID).String()
		}
		if a.LinkLayer == verbs.LinkLayerEthernet {
			kind = ", RoCE v1"
			if g.Type == verbs.GIDTypeRoCEv2 {
				kind = ", RoCE v2"
			}
		}
		field(fmt.Sprintf("GID[%3d]", g.Index), "%s%s", text, kind)
	}
	d.WriteByte('\n')
}

// boardID returns the board ID that the kernel's driver reports, or "" if it reports none.
func boardID(dev *verbs.Device) string {
	k, ok := verbs.Ability[verbs.ProviderKernelDevice](dev.Provider())
	if !ok {
		return ""
	}
	b, err := os.ReadFile(filepath.Join("/sys/class/infiniband", k.KernelName(), "board_id"))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

// lines replaces the arrows in text, which make tabs visible in the test, by tabs.
func lines(text string) string { return strings.ReplaceAll(text, "→", "\t") }

// TestDevinfoDevice: everything that ibv_devinfo prints only for some devices. What it prints for
// every device is compared with its output in the guest.
func TestDevinfoDevice(t *testing.T) {
	var d devinfo
	info := verbs.DeviceInfo{Name: "mlx5_0", Transport: verbs.TransportIB}
	attr := verbs.DeviceAttr{VendorID: 0x2c9, VendorPartID: 1<<32 - 1, HWVer: 0xab, MaxFMR: 3, MaxMapPerFMR: 4,
		DeviceCapFlags: 1<<29 | 1<<15 | 1<<0, AtomicCap: 3, NumCompVectors: 63}
	ex := verbs.DeviceAttrEx{
		ODP: verbs.ODPCaps{General: verbs.ODPSupport | verbs.ODPSupportImplicit | 4, RC: 0x3f, UC: verbs.ODPSend,
			UD: verbs.ODPAtomicWrite | 1<<8, XRC: verbs.ODPSRQRecv | verbs.ODPFlush},
		CompletionTimestampMask: 1<<48 - 1, HCACoreClock: 156250, RawPacketCaps: 0xff,
		DeviceCapFlagsEx: 1<<36 | 1<<34 | 1<<40 | 1<<0,
		TSO:              verbs.TSOCaps{MaxTSO: 262144, SupportedQPTs: 1<<8 | 1<<4 | 1<<2},
		RSS: verbs.RSSCaps{SupportedQPTs: 1 << 8, MaxRWQIndirectionTables: 5, MaxRWQIndirectionTableSize: 6,
			RXHashFunction:   7,
			RXHashFieldsMask: 0x800000ff},
		MaxWQTypeRQ: 8388608, PacketPacing: verbs.PacketPacingCaps{QPRateLimitMin: 1, QPRateLimitMax: 2,
			SupportedQPTs: 1<<8 | 1<<4 | 1<<2 | 1<<3},
		TagMatching:  verbs.TagMatchingCaps{MaxRndvHdrSize: 64, MaxNumTags: 127, MaxOps: 16, MaxSGE: 1, Flags: 3},
		CQModeration: verbs.CQModerationCaps{MaxCQCount: 65535, MaxCQPeriod: 4095}, MaxDMSize: 131072,
	}
	d.device(info, "MT_0000000008", attr, ex)
	for _, want := range []string{
		"hca_id:→mlx5_0\n→transport:→→→InfiniBand (0)\n→node_guid:→→→0000:0000:0000:0000\n",
		"\n→vendor_id:→→→0x02c9\n→vendor_part_id:→→→-1\n→hw_ver:→→→→0xAB\n→board_id:→→→MT_0000000008\n→phys_port_cnt:→→→0\n",
		"\n→device_cap_flags:→→0x20008001\n→→→→→RESIZE_MAX_WR\n→→→→→MANAGED_FLOW_STEERING\n→→→→→Unknown flags: 0x8000\n→max_sge:→→→0\n",
		"\n→atomic_cap:→→→invalid atomic capability (3)\n",
		"\n→max_fmr:→→→3\n→max_map_per_fmr:→→4\n→max_srq:→→→0\n→max_pkeys:→→→0\n",
		"\n→general_odp_caps:\n→→→→→ODP_SUPPORT\n→→→→→ODP_SUPPORT_IMPLICIT\n→→→→→Unknown flags: 0x4\n" +
			"→rc_odp_caps:\n→→→→→SUPPORT_SEND\n→→→→→SUPPORT_RECV\n→→→→→SUPPORT_WRITE\n→→→→→SUPPORT_READ\n→→→→→SUPPORT_ATOMIC\n→→→→→SUPPORT_SRQ\n" +
			"→uc_odp_caps:\n→→→→→SUPPORT_SEND\n→ud_odp_caps:\n→→→→→SUPPORT_ATOMIC_WRITE\n→→→→→Unknown flags: 0x100\n" +
			"→xrc_odp_caps:\n→→→→→SUPPORT_SRQ\n→→→→→SUPPORT_FLUSH\n" +
			"→completion timestamp_mask:→→→0x0000ffffffffffff\n→hca_core_clock:→→→156250kHZ\n" +
			"→raw packet caps:\n→→→→→C-VLAN stripping offload\n→→→→→Scatter FCS offload\n→→→→→IP csum offload\n→→→→→Delay drop\n" +
			"→device_cap_flags_ex:→→0x11400000001\n→→→→→RAW_SCATTER_FCS\n→→→→→PCI_WRITE_END_PADDING\n→→→→→Unknown flags: 0x10000000000\n" +
			"→tso_caps:\n→→max_tso:→→→262144\n→→supported_qp:\n→→→→→SUPPORT_RAW_PACKET\n→→→→→SUPPORT_UD\n→→→→→Unknown flags: 0x4\n" +
			"→rss_caps:\n→→max_rwq_indirection_tables:→→→5\n→→max_rwq_indirection_table_size:→→→6\n" +
			"→→rx_hash_function:→→→→0x7\n→→rx_hash_fields_mask:→→→→0x800000FF\n→→supported_qp:\n→→→→→SUPPORT_RAW_PACKET\n" +
			"→max_wq_type_rq:→→→8388608\n" +
			"→packet_pacing_caps:\n→→qp_rate_limit_min:→1kbps\n→→qp_rate_limit_max:→2kbps\n→→supported_qp:\n" +
			"→→→→→SUPPORT_RAW_PACKET\n→→→→→SUPPORT_UD\n→→→→→SUPPORT_RC\n→→→→→Unknown flags: 0x8\n" +
			"→max_rndv_hdr_size:→→64\n→max_num_tags:→→→127\n→max_ops:→→→16\n→max_sge:→→→1\n→flags:\n→→→→→IBV_TM_CAP_RC\n" +
			"\n→cq moderation caps:\n→→max_cq_count:→65535\n→→max_cq_period:→4095 us\n\n" +
			"→maximum available device memory:→131072Bytes\n\n→num_comp_vectors:→→63\n",
	} {
		require.Contains(t, d.String(), lines(want))
	}
	require.NotContains(t, d.String(), "fw_ver")
	require.NotContains(t, d.String(), "max_srq_wr")
}

func TestDevinfoPort(t *testing.T) {
	v4 := verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.7"))
	link := verbs.GID(netip.MustParseAddr("fe80::1:2").As16())
	mac := verbs.GID{0x02, 1, 2, 3, 4, 5}
	gids := []verbs.GIDEntry{{GID: link, Index: 0, Type: verbs.GIDTypeRoCEv1},
		{GID: v4, Index: 3, Type: verbs.GIDTypeRoCEv2}, {GID: mac, Index: 4}}
	var d devinfo
	d.port(verbs.TransportIB, 2,
		verbs.PortAttr{State: verbs.PortInit, MaxMTU: verbs.MTU2048, ActiveMTU: 6, SMLID: 1, LID: 2, LMC: 3,
			LinkLayer: verbs.LinkLayerEthernet, MaxMsgSz: 1 << 30, PortCapFlags: 0x1a, PortCapFlags2: 0x3, MaxVLNum: 5,
			BadPKeyCntr: 10, QKeyViolCntr: 11,
			SMSL: 4, PKeyTblLen: 128, GIDTblLen: 256, SubnetTimeout: 18, InitTypeReply: 6, ActiveWidth: 2,
			ActiveSpeed: 128,
			PhysState:   5}, gids)
	require.Equal(t, lines("→→port:→2\n→→→state:→→→PORT_INIT (2)\n→→→max_mtu:→→2048 (4)\n→→→active_mtu:→→invalid MTU (6)\n→→→sm_lid:→→→1\n"+
		"→→→port_lid:→→2\n→→→port_lmc:→→0x03\n→→→link_layer:→→Ethernet\n→→→max_msg_sz:→→0x40000000\n→→→port_cap_flags:→→0x0000001a\n"+
		"→→→port_cap_flags2:→0x0003\n→→→max_vl_num:→→15 (5)\n→→→bad_pkey_cntr:→→0xa\n→→→qkey_viol_cntr:→→0xb\n→→→sm_sl:→→→4\n"+
		"→→→pkey_tbl_len:→→128\n→→→gid_tbl_len:→→256\n→→→subnet_timeout:→→18\n→→→init_type_reply:→6\n→→→active_width:→→4X (2)\n"+
		"→→→active_speed:→→100.0 Gbps (128)\n→→→phys_state:→→LINK_UP (5)\n"+
		"→→→GID[  0]:→→fe80:0000:0000:0000:0000:0000:0001:0002, RoCE v1\n→→→GID[  3]:→→::ffff:192.0.2.7, RoCE v2\n\n"),
		d.String())

	d = devinfo{}
	d.port(verbs.TransportIWARP, 1,
		verbs.PortAttr{State: verbs.PortActiveDefer, LinkLayer: 9, ActiveWidth: 3, ActiveSpeed: 5, PhysState: 5},
		gids[:1])
	require.Contains(t, d.String(), "invalid state (5)\n")
	require.Contains(t, d.String(), "\tUnknown\n")
	require.Contains(t, d.String(), "invalid widthX (3)\n")
	require.Contains(t, d.String(), "invalid speed (5)\n")
	require.NotContains(t, d.String(), "phys_state")
	require.Contains(t, d.String(), "0001:0002\n", "no kind without Ethernet")
}

// SPDX-License-Identifier: BSD-3-Clause

package devices

import "github.com/goverbs/goverbs/verbs"

// attributes are the fields of a C struct as JSON values: text for codes that have one, otherwise
// numbers or objects.
type attributes map[string]any

// deviceAttributes returns the fields of struct ibv_device_attr, and three that C defines
// elsewhere: node_type of struct ibv_device, num_comp_vectors of struct ibv_context, and
// max_inline_data of struct ibv_qp_cap.
func deviceAttributes(info verbs.DeviceInfo, board string, a verbs.DeviceAttr) attributes {
	m := attributes{
		"node_type":                 info.NodeType.String(),
		"fw_ver":                    a.FwVer,
		"node_guid":                 a.NodeGUID.String(),
		"sys_image_guid":            a.SysImageGUID.String(),
		"vendor_id":                 a.VendorID,
		"vendor_part_id":            a.VendorPartID,
		"hw_ver":                    a.HWVer,
		"phys_port_cnt":             a.PhysPortCnt,
		"max_mr_size":               a.MaxMRSize,
		"page_size_cap":             a.PageSizeCap,
		"max_qp":                    a.MaxQP,
		"max_qp_wr":                 a.MaxQPWR,
		"device_cap_flags":          uint32(a.DeviceCapFlags),
		"max_sge":                   a.MaxSGE,
		"max_sge_rd":                a.MaxSGERd,
		"max_inline_data":           a.MaxInlineData,
		"max_cq":                    a.MaxCQ,
		"max_cqe":                   a.MaxCQE,
		"max_mr":                    a.MaxMR,
		"max_pd":                    a.MaxPD,
		"max_qp_rd_atom":            a.MaxQPRdAtom,
		"max_ee_rd_atom":            a.MaxEERdAtom,
		"max_res_rd_atom":           a.MaxResRdAtom,
		"max_qp_init_rd_atom":       a.MaxQPInitRdAtom,
		"max_ee_init_rd_atom":       a.MaxEEInitRdAtom,
		"atomic_cap":                a.AtomicCap.String(),
		"max_ee":                    a.MaxEE,
		"max_rdd":                   a.MaxRDD,
		"max_mw":                    a.MaxMW,
		"max_raw_ipv6_qp":           a.MaxRawIPv6QP,
		"max_raw_ethy_qp":           a.MaxRawEthyQP,
		"max_mcast_grp":             a.MaxMcastGrp,
		"max_mcast_qp_attach":       a.MaxMcastQPAttach,
		"max_total_mcast_qp_attach": a.MaxTotalMcastQPAttach,
		"max_ah":                    a.MaxAH,
		"max_fmr":                   a.MaxFMR,
		"max_map_per_fmr":           a.MaxMapPerFMR,
		"max_srq":                   a.MaxSRQ,
		"max_srq_wr":                a.MaxSRQWR,
		"max_srq_sge":               a.MaxSRQSGE,
		"max_pkeys":                 a.MaxPKeys,
		"local_ca_ack_delay":        a.LocalCAAckDelay,
		"num_comp_vectors":          a.NumCompVectors,
	}
	if board != "" {
		m["board_id"] = board
	}
	return m
}

// extendedAttributes returns the fields of struct ibv_device_attr_ex that follow orig_attr.
func extendedAttributes(a verbs.DeviceAttrEx) attributes {
	return attributes{
		"odp_caps": attributes{"general_caps": uint64(a.ODP.General), "rc_odp_caps": uint32(a.ODP.RC),
			"uc_odp_caps": uint32(a.ODP.UC), "ud_odp_caps": uint32(a.ODP.UD)},
		"xrc_odp_caps":              uint32(a.ODP.XRC),
		"completion_timestamp_mask": a.CompletionTimestampMask,
		"hca_core_clock":            a.HCACoreClock,
		"device_cap_flags_ex":       uint64(a.DeviceCapFlagsEx),
		"tso_caps":                  attributes{"max_tso": a.TSO.MaxTSO, "supported_qpts": a.TSO.SupportedQPTs},
		"rss_caps": attributes{"supported_qpts": a.RSS.SupportedQPTs,
			"max_rwq_indirection_tables":     a.RSS.MaxRWQIndirectionTables,
			"max_rwq_indirection_table_size": a.RSS.MaxRWQIndirectionTableSize,
			"rx_hash_fields_mask":            a.RSS.RXHashFieldsMask,
			"rx_hash_function":               a.RSS.RXHashFunction},
		"max_wq_type_rq": a.MaxWQTypeRQ,
		"packet_pacing_caps": attributes{"qp_rate_limit_min": a.PacketPacing.QPRateLimitMin,
			"qp_rate_limit_max": a.PacketPacing.QPRateLimitMax,
			"supported_qpts":    a.PacketPacing.SupportedQPTs},
		"raw_packet_caps": a.RawPacketCaps,
		"tm_caps": attributes{"max_rndv_hdr_size": a.TagMatching.MaxRndvHdrSize,
			"max_num_tags": a.TagMatching.MaxNumTags,
			"flags":        a.TagMatching.Flags, "max_ops": a.TagMatching.MaxOps, "max_sge": a.TagMatching.MaxSGE},
		"cq_mod_caps": attributes{"max_cq_count": a.CQModeration.MaxCQCount,
			"max_cq_period": a.CQModeration.MaxCQPeriod},
		"max_dm_size": a.MaxDMSize,
		"pci_atomic_caps": attributes{"fetch_add": a.PCIAtomic.FetchAdd, "swap": a.PCIAtomic.Swap,
			"compare_swap": a.PCIAtomic.CompareSwap},
	}
}

// portAttributes returns the fields of struct ibv_port_attr.
func portAttributes(a verbs.PortAttr) attributes {
	return attributes{
		"state":           a.State.String(),
		"max_mtu":         a.MaxMTU.Bytes(),
		"active_mtu":      a.ActiveMTU.Bytes(),
		"gid_tbl_len":     a.GIDTblLen,
		"port_cap_flags":  a.PortCapFlags,
		"port_cap_flags2": a.PortCapFlags2,
		"max_msg_sz":      a.MaxMsgSz,
		"bad_pkey_cntr":   a.BadPKeyCntr,
		"qkey_viol_cntr":  a.QKeyViolCntr,
		"pkey_tbl_len":    a.PKeyTblLen,
		"lid":             a.LID,
		"sm_lid":          a.SMLID,
		"lmc":             a.LMC,
		"max_vl_num":      a.MaxVLNum,
		"sm_sl":           a.SMSL,
		"subnet_timeout":  a.SubnetTimeout,
		"init_type_reply": a.InitTypeReply,
		"active_width":    a.ActiveWidth,
		"active_speed":    a.ActiveSpeed,
		"phys_state":      a.PhysState,
		"link_layer":      a.LinkLayer.String(),
		"flags":           a.Flags,
	}
}

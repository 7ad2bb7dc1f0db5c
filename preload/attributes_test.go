// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo

package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/internal/runenv"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// TestDescribe checks that every attribute of a device and its port has the same value in C as in
// Go, except those that C programs mistake for an error if they are 0.
func TestDescribe(t *testing.T) {
	for _, name := range []string{"usiw0", "usiw0-plain", "ib:usiw0"} {
		code, got := program(t, "describe", runenv.Device+"="+name)
		require.Zero(t, code, got)
		cfg, _, err := config(func(option string) string { return map[string]string{runenv.Device: name}[option] })
		require.NoError(t, err)
		nic, err := usiw.New(cfg)
		require.NoError(t, err)
		dev := nic.Device()
		if strings.HasPrefix(name, "ib:") {
			dev, err = ibcompat.Wrap(dev, ibcompat.Config{})
			require.NoError(t, err)
		}
		ctx, err := dev.Open()
		require.NoError(t, err)
		d, err := ctx.QueryDevice()
		require.NoError(t, err)
		p, err := ctx.QueryPort(1)
		require.NoError(t, err)
		require.NoError(t, ctx.Close())
		require.NoError(t, nic.Close())
		if p.ActiveWidth == 0 {
			p.ActiveWidth, p.ActiveSpeed = 1, 1
		}
		info := dev.Info()
		var want strings.Builder
		line := func(field string, value any) { fmt.Fprintf(&want, "%s %v\n", field, value) }
		line("name", name)
		line("node_type", int(info.NodeType))
		line("transport_type", int(info.Transport))
		line("guid", fmt.Sprintf("%016x", uint64(info.NodeGUID)))
		line("fw_ver", d.FwVer)
		line("node_guid", fmt.Sprintf("%016x", uint64(d.NodeGUID)))
		line("sys_image_guid", fmt.Sprintf("%016x", uint64(d.SysImageGUID)))
		for _, f := range []struct {
			name  string
			value any
		}{
			{"max_mr_size", d.MaxMRSize}, {"page_size_cap", d.PageSizeCap}, {"vendor_id", max(d.VendorID, noVendor)},
			{"vendor_part_id", d.VendorPartID},
			{"hw_ver", d.HWVer}, {"max_qp", d.MaxQP}, {"max_qp_wr", d.MaxQPWR},
			{"device_cap_flags", uint32(d.DeviceCapFlags)},
			{"max_sge", d.MaxSGE}, {"max_sge_rd", d.MaxSGERd}, {"max_cq", d.MaxCQ}, {"max_cqe", d.MaxCQE},
			{"max_mr", d.MaxMR}, {"max_pd", d.MaxPD},
			{"max_qp_rd_atom", d.MaxQPRdAtom}, {"max_res_rd_atom", d.MaxResRdAtom},
			{"max_qp_init_rd_atom", d.MaxQPInitRdAtom},
			{"atomic_cap", int(d.AtomicCap)}, {"max_mw", d.MaxMW}, {"max_srq", d.MaxSRQ}, {"max_srq_wr", d.MaxSRQWR},
			{"max_srq_sge", d.MaxSRQSGE}, {"max_pkeys", d.MaxPKeys}, {"local_ca_ack_delay", d.LocalCAAckDelay},
			{"phys_port_cnt", d.PhysPortCnt}, {"port.state", int(p.State)}, {"port.max_mtu", int(p.MaxMTU)},
			{"port.active_mtu", int(p.ActiveMTU)}, {"port.gid_tbl_len", max(1, p.GIDTblLen)},
			{"port.port_cap_flags", p.PortCapFlags},
			{"port.max_msg_sz", p.MaxMsgSz}, {"port.bad_pkey_cntr", p.BadPKeyCntr},
			{"port.qkey_viol_cntr", p.QKeyViolCntr}, {"port.pkey_tbl_len", p.PKeyTblLen}, {"port.lid", p.LID},
			{"port.sm_lid", p.SMLID}, {"port.lmc", p.LMC}, {"port.max_vl_num", p.MaxVLNum}, {"port.sm_sl", p.SMSL},
			{"port.subnet_timeout", p.SubnetTimeout}, {"port.init_type_reply", p.InitTypeReply},
			{"port.active_width", p.ActiveWidth},
			{"port.active_speed", p.ActiveSpeed},
			{"port.phys_state", p.PhysState}, {"port.link_layer", uint8(p.LinkLayer)}, {"port.flags", p.Flags},
			{"port.port_cap_flags2", p.PortCapFlags2},
		} {
			line(f.name, f.value)
		}
		require.Equal(t, want.String(), got, name)
	}
}

// TestFill converts a Go completion with a different number in each field, and checks every field
// in C, including those that these devices leave 0.
func TestFill(t *testing.T) {
	w := verbs.WC{ID: 1 << 63, Status: verbs.WCSuccess, Opcode: verbs.WCRecv, Flags: verbs.WCWithImm, ByteLen: 2,
		Imm: 0x01020304, VendorErr: 3, QPNum: 4, SrcQP: 5, PKeyIndex: 6, SLID: 7, SL: 8, DLIDPathBits: 9}
	to := reflect.New(reflect.TypeOf(fill).In(0).Elem())
	reflect.ValueOf(fill).Call([]reflect.Value{to, reflect.ValueOf(&w)})
	got := map[string]uint64{}
	for i := range to.Elem().NumField() {
		switch f, name := to.Elem().Field(i), to.Elem().Type().Field(i).Name; {
		case f.CanUint():
			got[name] = f.Uint()
		case name == "anon0": // imm_data
			require.Equal(t, "[1 2 3 4]", fmt.Sprint(f))
		}
	}
	require.Equal(t, map[string]uint64{"wr_id": 1 << 63, "status": 0, "opcode": 128, "vendor_err": 3, "byte_len": 2,
		"qp_num": 4, "src_qp": 5, "wc_flags": 2, "pkey_index": 6, "slid": 7, "sl": 8, "dlid_path_bits": 9}, got)
}

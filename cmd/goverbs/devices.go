// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// deviceReport is one element of what devices --json prints.
type deviceReport struct {
	Name      string            `json:"name"`
	Provider  string            `json:"provider"`
	Transport string            `json:"transport"`
	NodeGUID  string            `json:"node_guid"`
	Ports     []portReport      `json:"ports"`
	Ops       map[string]string `json:"ops"`
	Attr      map[string]any    `json:"attr,omitempty"` // with -v: ibv_device_attr

	caps  []ext.Capability
	attrs []attribute
}

type portReport struct {
	Port      int            `json:"port"`
	State     string         `json:"state"`
	MTU       int            `json:"active_mtu"` // octets
	LinkLayer string         `json:"link_layer"`
	Attr      map[string]any `json:"attr,omitempty"` // with -v: ibv_port_attr

	attrs []attribute
}

// attribute is a field of a C struct and its value.
type attribute struct {
	name  string
	value any
}

func newDevices() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the RDMA devices and what they can do",
		Long: "List the RDMA devices of this host, usiw0 of this process among them, and what operations they have.\n" +
			"With -v all attributes are shown under the names of ibv_device_attr and ibv_port_attr.",
		Args: noArguments,
	}
	verbose := cmd.Flags().BoolP("verbose", "v", false, "show all attributes")
	asJSON := cmd.Flags().Bool("json", false, "print one line of JSON")
	cmd.RunE = withNIC(func(cmd *cobra.Command, _ *verbs.Device) error {
		devices, err := verbs.Devices()
		if err != nil {
			return err
		}
		reports := make([]deviceReport, len(devices))
		for i, d := range devices {
			if reports[i], err = describe(d, *verbose); err != nil {
				return err
			}
		}
		switch {
		case *asJSON:
			return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"devices": reports})
		case *verbose:
			return printVerbose(cmd.OutOrStdout(), reports)
		}
		return printDevices(cmd.OutOrStdout(), reports)
	})
	return cmd
}

// describe opens a device and asks for all that is printed.
func describe(d *verbs.Device, verbose bool) (r deviceReport, err error) {
	ctx, err := d.Open()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return r, err
	}
	info := d.Info()
	r = deviceReport{Name: info.Name, Provider: info.Provider, Transport: info.Transport.String(),
		NodeGUID: guidText(info.NodeGUID), Ports: []portReport{}, Ops: make(map[string]string), caps: ext.Capabilities(ctx)}
	for _, c := range r.caps {
		r.Ops[c.Op.String()] = c.Support.String()
	}
	if verbose {
		r.attrs = deviceAttributes(info, attr)
		r.Attr = object(r.attrs)
	}
	for port := 1; port <= attr.PhysPortCnt; port++ {
		pa, err := ctx.QueryPort(port)
		if err != nil {
			return r, err
		}
		pr := portReport{Port: port, State: pa.State.String(), MTU: pa.ActiveMTU.Bytes(), LinkLayer: pa.LinkLayer.String()}
		if verbose {
			pr.attrs = portAttributes(pa)
			pr.Attr = object(pr.attrs)
		}
		r.Ports = append(r.Ports, pr)
	}
	return r, nil
}

// guidText writes a GUID as ibv_devinfo does.
func guidText(g verbs.GUID) string {
	return fmt.Sprintf("%04x:%04x:%04x:%04x", uint16(g>>48), uint16(g>>32), uint16(g>>16), uint16(g))
}

func object(attrs []attribute) map[string]any {
	m := make(map[string]any, len(attrs))
	for _, a := range attrs {
		m[a.name] = a.value
	}
	return m
}

func deviceAttributes(info verbs.DeviceInfo, a verbs.DeviceAttr) []attribute {
	return []attribute{
		{"node_type", info.NodeType.String()},
		{"fw_ver", a.FwVer},
		{"node_guid", guidText(a.NodeGUID)},
		{"sys_image_guid", guidText(a.SysImageGUID)},
		{"vendor_id", a.VendorID},
		{"vendor_part_id", a.VendorPartID},
		{"hw_ver", a.HWVer},
		{"phys_port_cnt", a.PhysPortCnt},
		{"max_mr_size", a.MaxMRSize},
		{"page_size_cap", a.PageSizeCap},
		{"max_qp", a.MaxQP},
		{"max_qp_wr", a.MaxQPWR},
		{"device_cap_flags", uint32(a.DeviceCapFlags)},
		{"max_sge", a.MaxSGE},
		{"max_sge_rd", a.MaxSGERd},
		{"max_inline_data", a.MaxInlineData},
		{"max_cq", a.MaxCQ},
		{"max_cqe", a.MaxCQE},
		{"max_mr", a.MaxMR},
		{"max_pd", a.MaxPD},
		{"max_qp_rd_atom", a.MaxQPRdAtom},
		{"max_res_rd_atom", a.MaxResRdAtom},
		{"max_qp_init_rd_atom", a.MaxQPInitRdAtom},
		{"atomic_cap", a.AtomicCap.String()},
		{"max_mw", a.MaxMW},
		{"max_ah", a.MaxAH},
		{"max_srq", a.MaxSRQ},
		{"max_srq_wr", a.MaxSRQWR},
		{"max_srq_sge", a.MaxSRQSGE},
		{"max_pkeys", a.MaxPKeys},
		{"local_ca_ack_delay", a.LocalCAAckDelay},
	}
}

func portAttributes(a verbs.PortAttr) []attribute {
	return []attribute{
		{"state", a.State.String()},
		{"max_mtu", a.MaxMTU.Bytes()},
		{"active_mtu", a.ActiveMTU.Bytes()},
		{"gid_tbl_len", a.GIDTblLen},
		{"max_msg_sz", a.MaxMsgSz},
		{"pkey_tbl_len", a.PKeyTblLen},
		{"lid", a.LID},
		{"sm_lid", a.SMLID},
		{"lmc", a.LMC},
		{"active_width", a.ActiveWidth},
		{"active_speed", a.ActiveSpeed},
		{"phys_state", a.PhysState},
		{"link_layer", a.LinkLayer.String()},
	}
}

// printDevices prints a table of one line for each device.
func printDevices(w io.Writer, reports []deviceReport) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DEVICE\tPROVIDER\tTRANSPORT\tNODE GUID\tPORTS\tRFC 7306")
	for _, r := range reports {
		var ports []string
		for _, p := range r.Ports {
			ports = append(ports, fmt.Sprintf("%d %s", p.Port, p.State))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Provider, r.Transport, r.NodeGUID,
			strings.Join(ports, ", "), r.extensions())
	}
	return t.Flush()
}

// extensions says which operations of RFC 7306 the device has: "all", "none" or their names.
func (r *deviceReport) extensions() string {
	var has []string
	for _, c := range r.caps {
		if ext.Operations.Has(c.Op) && c.Support == ext.Native {
			has = append(has, c.Op.String())
		}
	}
	switch len(has) {
	case 0:
		return "none"
	case bits.OnesCount32(uint32(ext.Operations)):
		return "all"
	}
	return strings.Join(has, ",")
}

// printVerbose prints everything, one value in a line.
func printVerbose(w io.Writer, reports []deviceReport) error {
	var b strings.Builder
	for i, r := range reports {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "device: %s\n", r.Name)
		line := func(indent int, name string, value any) {
			fmt.Fprintf(&b, "%*s%-*s %v\n", indent, "", 28-indent, name+":", value)
		}
		line(4, "provider", r.Provider)
		line(4, "transport", r.Transport)
		for _, a := range r.attrs {
			line(4, a.name, a.value)
		}
		for _, p := range r.Ports {
			line(4, "port", p.Port)
			for _, a := range p.attrs {
				line(8, a.name, a.value)
			}
		}
		fmt.Fprintf(&b, "    operations:\n")
		for _, c := range r.caps {
			line(8, c.Op.String(), c.Support)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

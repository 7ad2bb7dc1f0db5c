// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"text/tabwriter"

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
	Attr      map[string]any    `json:"attr,omitempty"`  // with -v: ibv_device_attr
	Error     string            `json:"error,omitempty"` // why the rest is not known

	caps  []ext.Capability
	attrs []attribute
}

type portReport struct {
	Port      int            `json:"port"`
	State     string         `json:"state"`
	MTU       int            `json:"active_mtu"` // bytes
	LinkLayer string         `json:"link_layer"`
	GIDs      []gidReport    `json:"gids"`
	Attr      map[string]any `json:"attr,omitempty"` // with -v: ibv_port_attr

	attrs []attribute
}

// gidReport is a row of a GID table that is not empty.
type gidReport struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	NetDev string `json:"netdev"` // the network interface, "" if there is none in this network namespace
}

// Report describes devices. Its JSON form is what devices --json prints.
type Report struct {
	Devices []deviceReport `json:"devices"`
	// Libibverbs tells whether the program can use libibverbs; without it the kernel's devices are not listed.
	Libibverbs bool   `json:"libibverbs"`
	Error      string `json:"error,omitempty"` // why the kernel's devices are not listed

	all bool // not only one device was asked for
}

// attribute is a field of a C struct and its value.
type attribute struct {
	name  string
	value any
}

// List describes the device only, or all if only is nil: at least nic if the others cannot be listed. With verbose it also
// asks for the attributes.
func List(nic, only *verbs.Device, verbose bool) *Report {
	missing := verbs.RDMACore()
	list := &Report{Devices: []deviceReport{}, Libibverbs: missing == nil, all: only == nil}
	if missing != nil {
		list.Error = missing.Error()
	}
	devices := []*verbs.Device{only}
	if only == nil {
		var err error
		if devices, err = verbs.Devices(); err != nil {
			list.Error, devices = err.Error(), []*verbs.Device{nic}
		}
	}
	for _, d := range devices {
		info := d.Info()
		r := deviceReport{Name: info.Name, Provider: info.Provider, Transport: info.Transport.String(),
			NodeGUID: guidText(info.NodeGUID), Ports: []portReport{}, Ops: make(map[string]string)}
		if err := r.ask(d, verbose); err != nil {
			r.Error = err.Error()
		}
		list.Devices = append(list.Devices, r)
	}
	return list
}

// ask opens a device and asks it for all that is printed.
func (r *deviceReport) ask(d *verbs.Device, verbose bool) (err error) {
	ctx, err := d.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	attr, err := ctx.QueryDevice()
	if err != nil {
		return err
	}
	r.caps = ext.Capabilities(ctx)
	for _, c := range r.caps {
		r.Ops[c.Op.String()] = c.Support.String()
	}
	if verbose {
		r.attrs = deviceAttributes(d.Info(), attr)
		r.Attr = object(r.attrs)
	}
	for port := 1; port <= attr.PhysPortCnt; port++ {
		pa, err := ctx.QueryPort(port)
		if err != nil {
			return err
		}
		pr := portReport{Port: port, State: pa.State.String(), MTU: pa.ActiveMTU.Bytes(), LinkLayer: pa.LinkLayer.String()}
		if pr.GIDs, err = gidTable(ctx, port); err != nil {
			return err
		}
		if verbose {
			pr.attrs = portAttributes(pa)
			pr.Attr = object(pr.attrs)
		}
		r.Ports = append(r.Ports, pr)
	}
	return nil
}

// gidTable returns the rows of a port's GID table, none for a device without GIDs.
func gidTable(ctx *verbs.Context, port int) ([]gidReport, error) {
	rows := []gidReport{}
	entries, err := ctx.GIDs(port)
	if errors.Is(err, verbs.ErrNotSupported) {
		return rows, nil
	}
	for _, e := range entries {
		rows = append(rows, gidReport{Index: e.Index, GID: e.GID.String(), Type: e.Type.String(),
			NetDev: netDev(ctx.Device().Info().Transport, e)})
	}
	return rows, err
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

// Print prints a table of one line for each device.
func (l *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DEVICE\tPROVIDER\tTRANSPORT\tNODE GUID\tPORTS\tNETDEV\tRFC 7306")
	for _, r := range l.Devices {
		var ports, netDevs []string
		for _, p := range r.Ports {
			ports = append(ports, fmt.Sprintf("%d %s", p.Port, p.State))
			for _, g := range p.GIDs {
				if g.NetDev != "" && !slices.Contains(netDevs, g.NetDev) {
					netDevs = append(netDevs, g.NetDev)
				}
			}
		}
		last := r.extensions()
		if r.Error != "" {
			last = "? (" + r.Error + ")"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Provider, r.Transport, r.NodeGUID,
			orNone(ports), orNone(netDevs), last)
	}
	fmt.Fprint(t, l.remark())
	return t.Flush()
}

// orNone writes a list, "-" if nothing is in it.
func orNone(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// remark says in a line why devices may be missing, "" if none is.
func (l *Report) remark() string {
	switch {
	case l.Error != "":
		return "(the kernel's devices are not listed: " + l.Error + ")\n"
	case l.all && !slices.ContainsFunc(l.Devices, func(d deviceReport) bool { return d.Provider == "ibverbs" }):
		return "(the kernel has no RDMA device)\n"
	}
	return ""
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

// PrintVerbose prints everything, one value in a line.
func (l *Report) PrintVerbose(w io.Writer) error {
	var b strings.Builder
	for i, r := range l.Devices {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "device: %s\n", r.Name)
		line := func(indent int, name string, value any) {
			fmt.Fprintf(&b, "%*s%-*s %v\n", indent, "", 28-indent, name+":", value)
		}
		line(4, "provider", r.Provider)
		line(4, "transport", r.Transport)
		if r.Error != "" {
			line(4, "error", r.Error)
		}
		for _, a := range r.attrs {
			line(4, a.name, a.value)
		}
		for _, p := range r.Ports {
			line(4, "port", p.Port)
			for _, a := range p.attrs {
				line(8, a.name, a.value)
			}
			for _, g := range p.GIDs {
				line(8, fmt.Sprintf("GID[%3d]", g.Index), strings.TrimSpace(g.GID+", "+g.Type+" "+g.NetDev))
			}
		}
		if len(r.caps) > 0 {
			fmt.Fprintf(&b, "    operations:\n")
		}
		for _, c := range r.caps {
			line(8, c.Op.String(), c.Support)
		}
	}
	b.WriteString(l.remark())
	_, err := io.WriteString(w, b.String())
	return err
}

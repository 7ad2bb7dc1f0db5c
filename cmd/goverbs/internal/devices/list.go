// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/netdev"
	"github.com/goverbs/goverbs/verbs"
)

// deviceReport is one element of the output of devices --json.
type deviceReport struct {
	Name      string            `json:"name"`
	Provider  string            `json:"provider"`
	Driver    string            `json:"driver,omitempty"` // set if the device extends its driver
	Transport string            `json:"transport"`
	NodeGUID  string            `json:"node_guid"`
	Ports     []portReport      `json:"ports"`
	Ops       map[string]string `json:"ops"`
	Attr      attributes        `json:"attr,omitempty"`    // with -v: ibv_device_attr
	AttrEx    attributes        `json:"attr_ex,omitempty"` // with -v: ibv_device_attr_ex
	Error     string            `json:"error,omitempty"`   // why the rest is unknown

	caps []ext.Capability

	asked  bool // with -v: the device was queried for what follows
	info   verbs.DeviceInfo
	board  string
	attr   verbs.DeviceAttr
	attrEx verbs.DeviceAttrEx
}

type portReport struct {
	Port      int         `json:"port"`
	State     string      `json:"state"`
	MTU       int         `json:"active_mtu"` // bytes
	LinkLayer string      `json:"link_layer"`
	GIDs      []gidReport `json:"gids"`
	Attr      attributes  `json:"attr,omitempty"` // with -v: ibv_port_attr

	attr verbs.PortAttr
	gids []verbs.GIDEntry
}

// gidReport is an entry of a GID table that is not empty.
type gidReport struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Type   string `json:"type"`
	NetDev string `json:"netdev"` // network interface, "" if this network namespace has none
}

// Report describes devices. Its JSON form is the output of devices --json.
type Report struct {
	Devices []deviceReport `json:"devices"`
	// Libibverbs reports whether the program can use libibverbs. Without it kernel devices are not
	// listed.
	Libibverbs bool   `json:"libibverbs"`
	Error      string `json:"error,omitempty"` // why kernel devices are not listed

	all bool // all devices were requested
}

// List describes only, or every device if only is nil; if the others cannot be listed, nic alone.
// With verbose it also queries the attributes.
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
			NodeGUID: info.NodeGUID.String(), Ports: []portReport{}, Ops: make(map[string]string), info: info}
		if err := r.ask(d, verbose); err != nil {
			r.Error = err.Error()
		}
		list.Devices = append(list.Devices, r)
	}
	return list
}

// ask opens a device and queries everything that is printed.
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
	if n, ok := verbs.Ability[verbs.ProviderDriverNamer](ctx.Provider()); ok {
		r.Driver = n.DriverName()
	}
	if verbose {
		if r.attrEx, err = ctx.QueryDeviceEx(); err != nil {
			return err
		}
		r.board, r.attr, r.asked = boardID(d), attr, true
		r.Attr, r.AttrEx = deviceAttributes(r.info, r.board, attr), extendedAttributes(r.attrEx)
	}
	for port := 1; port <= attr.PhysPortCnt; port++ {
		pa, err := ctx.QueryPort(port)
		if err != nil {
			return err
		}
		pr := portReport{Port: port, State: pa.State.String(), MTU: pa.ActiveMTU.Bytes(),
			LinkLayer: pa.LinkLayer.String()}
		if pr.GIDs, pr.gids, err = gidTable(ctx, port); err != nil {
			return err
		}
		if verbose {
			pr.attr, pr.Attr = pa, portAttributes(pa)
		}
		r.Ports = append(r.Ports, pr)
	}
	return nil
}

// gidTable returns the entries of a port's GID table, or none for a device without GIDs.
func gidTable(ctx *verbs.Context, port int) ([]gidReport, []verbs.GIDEntry, error) {
	rows := []gidReport{}
	entries, err := ctx.GIDs(port)
	if errors.Is(err, verbs.ErrNotSupported) {
		return rows, nil, nil
	}
	for _, e := range entries {
		rows = append(rows, gidReport{Index: e.Index, GID: e.GID.String(), Type: e.Type.String(),
			NetDev: netdev.OfGID(ctx.Device().Info().Transport, e)})
	}
	return rows, entries, err
}

// Print prints a table with one line per device.
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, cmp.Or(r.Driver, r.Provider), r.Transport, r.NodeGUID,
			orNone(ports), orNone(netDevs), last)
	}
	fmt.Fprint(t, l.remark())
	return t.Flush()
}

// orNone formats a list, or "-" if it is empty.
func orNone(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// remark explains in one line why devices may be missing, or returns "" if none is.
func (l *Report) remark() string {
	switch {
	case l.Error != "":
		return "(the kernel's devices are not listed: " + l.Error + ")\n"
	case l.all && !slices.ContainsFunc(l.Devices, func(d deviceReport) bool { return d.Provider == "ibverbs" }):
		return "(the kernel has no RDMA device)\n"
	}
	return ""
}

// extensions returns which operations of RFC 7306 the device has: "all", "none" or their names.
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

// PrintVerbose prints everything: for each device the output of ibv_devinfo -v, then a section with
// what only goverbs knows.
func (l *Report) PrintVerbose(w io.Writer) error {
	var b strings.Builder
	for i := range l.Devices {
		b.WriteString(l.Devices[i].verbose())
	}
	b.WriteString(l.remark())
	_, err := io.WriteString(w, b.String())
	return err
}

// verbose returns what PrintVerbose prints for a device. If the device could not be fully queried,
// the section gives the reason.
func (r *deviceReport) verbose() string {
	d := new(devinfo)
	if r.asked {
		d.device(r.info, r.board, r.attr, r.attrEx)
	} else {
		fmt.Fprintf(d, "hca_id:\t%s\n", r.Name)
	}
	for _, p := range r.Ports {
		d.port(r.info.Transport, p.Port, p.attr, p.gids)
	}
	field := func(indent int, name, format string, args ...any) {
		d.field(indent, deviceColumn, name, format, args...)
	}
	d.WriteString("\tgoverbs:\n")
	field(2, "provider", "%s", r.Provider)
	if r.Driver != "" {
		field(2, "driver", "%s", r.Driver)
	}
	if r.Error != "" {
		field(2, "error", "%s", r.Error)
	}
	if r.asked {
		field(2, "max_inline_data", "%d", r.attr.MaxInlineData)
	}
	for _, p := range r.Ports {
		for _, g := range p.GIDs {
			netDev := ""
			if g.NetDev != "" {
				netDev = ", " + g.NetDev
			}
			field(2, fmt.Sprintf("port %d GID[%3d]", p.Port, g.Index), "%s, %s%s", g.GID, g.Type, netDev)
		}
	}
	if len(r.caps) > 0 {
		d.WriteString("\t\toperations:\n")
	}
	for _, c := range r.caps {
		d.field(3, portColumn, c.Op.String(), "%v", c.Support)
	}
	d.WriteByte('\n')
	return d.String()
}

// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"bytes"
	"encoding/json"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

func TestDevices(t *testing.T) {
	r := clitest.Run(t, "devices")
	require.Equal(t, clitest.Done, r.Code)
	require.Empty(t, r.Stderr)
	out := clitest.Lines(t, r.Stdout)
	require.Equal(t, []string{"DEVICE", "PROVIDER", "TRANSPORT", "NODE", "GUID", "PORTS", "NETDEV", "RFC", "7306"},
		strings.Fields(out[0]))
	if !clitest.WithLibibverbs {
		require.Equal(t, "(the kernel's devices are not listed: built without cgo or with the tag noibverbs)",
			out[len(out)-1])
		out = out[:len(out)-1]
	} else if kernelDevices(t) == 0 {
		require.Equal(t, "(the kernel has no RDMA device)", out[len(out)-1])
		out = out[:len(out)-1]
	}
	require.Regexp(t, `^usiw0 +usiw +iWARP +([0-9a-f]{4}:){3}[0-9a-f]{4} +1 active +- +all$`, out[len(out)-1],
		"the last one")
	require.Len(t, out, 2+kernelDevices(t))
}

// With --device one device is listed. Its GUID is the same in every run.
func TestDevicesOne(t *testing.T) {
	for _, form := range [][]string{nil, {"-v"}, {"--json"}} {
		all, one := clitest.Run(t, append([]string{"devices"}, form...)...),
			clitest.Run(t, append([]string{"devices", "--device", "usiw0"}, form...)...)
		require.Equal(t, clitest.Done, one.Code, one.Stderr)
		require.Contains(t, one.Stdout, "usiw0")
		if kernelDevices(t) == 0 {
			// Only the list of all devices says that the kernel has none.
			require.Equal(t, strings.Replace(all.Stdout, "(the kernel has no RDMA device)\n", "", 1), one.Stdout)
		} else {
			require.Less(t, len(one.Stdout), len(all.Stdout))
		}
	}
}

// The RNIC without RFC 7306 is listed only on request.
func TestDevicesPlain(t *testing.T) {
	require.NotContains(t, clitest.Run(t, "devices").Stdout, Plain)
	r := clitest.Run(t, "devices", "--device", Plain)
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	out := clitest.Lines(t, r.Stdout)
	require.GreaterOrEqual(t, len(out), 2) // then the reason if kernel devices cannot be listed
	require.Regexp(t, `^usiw0-plain +usiw +iWARP +([0-9a-f]{4}:){3}[0-9a-f]{4} +1 active +- +none$`, out[1])

	// The device is the same in every process, and for a wrong name the known ones are listed.
	require.Equal(t, out, clitest.Lines(t, clitest.Run(t, "devices", "--device", Plain).Stdout))
	for _, wrong := range []string{"usiw0-plan", "ib:usiw1-plain", "usiw0-plain:", "usiw0-plain:usiw0", "ib:ib:usiw0"} {
		r = clitest.Run(t, "devices", "--device", wrong)
		require.Equal(t, clitest.Usage, r.Code, wrong)
		require.Contains(t, r.Stderr, "no RDMA device named", wrong)
	}
	require.Contains(t, clitest.Run(t, "devices", "--device", "usiw0-plan").Stderr, "did you mean usiw0-plain?")
}

// kernelDevices returns how many kernel devices the program finds.
func kernelDevices(t *testing.T) int {
	t.Helper()
	if !clitest.WithLibibverbs {
		return 0
	}
	devices, err := filepath.Glob("/sys/class/infiniband/*")
	require.NoError(t, err)
	return len(devices)
}

func TestDevicesJSON(t *testing.T) {
	r := clitest.Run(t, "devices", "--json")
	require.Equal(t, clitest.Done, r.Code)
	require.Empty(t, r.Stderr)
	require.Len(t, clitest.Lines(t, r.Stdout), 1)
	var got struct {
		Devices    []map[string]any `json:"devices"`
		Libibverbs bool             `json:"libibverbs"`
		Error      string           `json:"error"`
	}
	dec := json.NewDecoder(strings.NewReader(r.Stdout))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&got))
	require.Equal(t, clitest.WithLibibverbs, got.Libibverbs)
	require.Equal(t, !clitest.WithLibibverbs, got.Error != "")
	require.Len(t, got.Devices, 1+kernelDevices(t))
	d := got.Devices[len(got.Devices)-1]
	require.Len(t, d, 6)
	require.Equal(t, "usiw0", d["name"])
	require.Equal(t, "usiw", d["provider"])
	require.Equal(t, "iWARP", d["transport"])
	require.Regexp(t, `^([0-9a-f]{4}:){3}[0-9a-f]{4}$`, d["node_guid"])
	require.Equal(t, []any{map[string]any{"port": 1.0, "state": "active", "active_mtu": 4096.0,
		"link_layer": "Ethernet", "gids": []any{}}}, d["ports"])
	ops := d["ops"].(map[string]any)
	n := 0
	for op := range verbs.Ops() {
		want := "native"
		if op == verbs.OpSendImm || op == verbs.OpAtomicWrite {
			want = "none"
		}
		require.Equal(t, want, ops[op.String()], op)
		n++
	}
	require.Len(t, ops, n)
}

func TestDevicesVerbose(t *testing.T) {
	r := clitest.Run(t, "devices", "-v")
	require.Equal(t, clitest.Done, r.Code)
	for _, want := range []string{"hca_id:\tusiw0\n", "\tmax_qp:\t\t\t\t65536\n",
		"\tgoverbs:\n\t\tprovider:\t\tusiw\n\t\tmax_inline_data:\t", "ATOMIC_GLOB (2)\n", "\t\t\tmax_msg_sz:\t",
		"\t\t\tmasked-cmp-swap:\tnative\n"} {
		require.Contains(t, r.Stdout, want)
	}
	r = clitest.Run(t, "devices", "--verbose", "--json")
	require.Equal(t, clitest.Done, r.Code)
	var got struct {
		Devices []struct {
			Attr   map[string]any
			AttrEx map[string]any `json:"attr_ex"`
			Ports  []struct{ Attr map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &got))
	usiw0 := got.Devices[len(got.Devices)-1]
	require.EqualValues(t, 65536, usiw0.Attr["max_qp"])
	require.EqualValues(t, 1, usiw0.Attr["num_comp_vectors"])
	require.EqualValues(t, 0, usiw0.AttrEx["odp_caps"].(map[string]any)["general_caps"])
	require.NotContains(t, usiw0.Attr, "board_id")
	require.Equal(t, "active", usiw0.Ports[0].Attr["state"])
}

// madeUp is a device of a provider in this test.
type madeUp struct {
	info verbs.DeviceInfo
	open func() (verbs.ProviderContext, error)
}

func (d *madeUp) Info() verbs.DeviceInfo                             { return d.info }
func (d *madeUp) Open(*verbs.Context) (verbs.ProviderContext, error) { return d.open() }

// madeUpContext has two ports, and GIDs on the second.
type madeUpContext struct{ verbs.ProviderContext }

func (madeUpContext) QueryDevice() (verbs.DeviceAttr, error) {
	return verbs.DeviceAttr{PhysPortCnt: 2}, nil
}
func (madeUpContext) Ops() verbs.OpSet { return verbs.MakeOpSet(verbs.OpFetchAdd, verbs.OpCmpSwap) }
func (madeUpContext) Close() error     { return nil }
func (madeUpContext) QueryPort(port int) (verbs.PortAttr, error) {
	if port == 1 {
		return verbs.PortAttr{State: verbs.PortDown, LinkLayer: verbs.LinkLayerInfiniBand, ActiveMTU: verbs.MTU256}, nil
	}
	return verbs.PortAttr{State: verbs.PortActive, LinkLayer: verbs.LinkLayerEthernet, ActiveMTU: verbs.MTU1024,
		GIDTblLen: 3}, nil
}
func (madeUpContext) QueryPKey(int, int) (uint16, error) { return 0xffff, nil }
func (madeUpContext) QueryGID(port, index int) (verbs.GIDEntry, error) {
	if index == 1 {
		return verbs.GIDEntry{}, verbs.ErrNoGID
	}
	return verbs.GIDEntry{GID: verbs.GIDFromAddr(netip.MustParseAddr("10.78.0.1")), Port: port, Index: index,
		Type: verbs.GIDTypeRoCEv2, NetDev: "lo"}, nil
}

// madeUpDevice registers a device for the duration of the test.
func madeUpDevice(t *testing.T, name string, open func() (verbs.ProviderContext, error)) *verbs.Device {
	t.Helper()
	d, err := verbs.Register(
		&madeUp{verbs.DeviceInfo{Name: name, Provider: "made-up", Transport: verbs.TransportIB}, open})
	require.NoError(t, err)
	t.Cleanup(func() { verbs.Unregister(d) })
	return d
}

// A device that cannot be opened is listed with the reason, and does not prevent others from being
// listed.
func TestDevicesBroken(t *testing.T) {
	madeUpDevice(t, "broken0", func() (verbs.ProviderContext, error) { return nil, syscall.EACCES })
	whole := madeUpDevice(t, "whole0", func() (verbs.ProviderContext, error) { return madeUpContext{}, nil })
	listed := func(verbose bool) (list *Report) {
		require.NoError(t, WithNIC(t.Context(), usiw.Config{}, func(nic *verbs.Device) error {
			list = List(nic, nil, verbose)
			return nil
		}))
		return list
	}
	printed := func(to func(io.Writer) error) string {
		var b bytes.Buffer
		require.NoError(t, to(&b))
		return b.String()
	}
	text := printed(listed(false).Print)
	require.Regexp(t, `(?m)^broken0 +made-up +InfiniBand +0000:0000:0000:0000 +- +- +\? \(verbs: .*broken0: permission denied\)$`, text)
	require.Regexp(t, `(?m)^whole0 +made-up +InfiniBand +0000:0000:0000:0000 +1 down, 2 active +lo +fetch-add,cmp-swap$`, text)
	require.Regexp(t, `(?m)^usiw0 .* all$`, text)

	text = printed(listed(true).PrintVerbose)
	require.Regexp(t, `(?m)^hca_id:\tbroken0\n\tgoverbs:\n\t\tprovider:\t+made-up\n\t\terror:\t+verbs: .*permission denied\n\n`, text)
	require.Regexp(t, `(?m)^\t\tport 2 GID\[  2\]:\t+0000:0000:0000:0000:0000:ffff:0a4e:0001, RoCE v2, lo$`, text)
	require.Contains(t, text, "\t\t\tGID[  2]:\t\t::ffff:10.78.0.1, RoCE v2\n")
	require.NotContains(t, text, "GID[  1]", "it is empty")

	asJSON, err := json.Marshal(listed(false))
	require.NoError(t, err)
	var list Report
	require.NoError(t, json.Unmarshal(asJSON, &list))
	n := len(list.Devices)
	require.Equal(t, "broken0", list.Devices[n-3].Name)
	require.Contains(t, list.Devices[n-3].Error, "permission denied")
	require.Empty(t, list.Devices[n-3].Ops)
	require.Empty(t, list.Devices[n-2].Error)
	require.Equal(t, "native", list.Devices[n-2].Ops["cmp-swap"])
	const gid = "0000:0000:0000:0000:0000:ffff:0a4e:0001"
	require.Equal(t, []portReport{
		{Port: 1, State: "down", MTU: 256, LinkLayer: "InfiniBand", GIDs: []gidReport{}},
		{Port: 2, State: "active", MTU: 1024, LinkLayer: "Ethernet",
			GIDs: []gidReport{{0, gid, "RoCE v2", "lo"}, {2, gid, "RoCE v2", "lo"}}},
	}, list.Devices[n-2].Ports)

	// The address on which a demo listens is that of the interface, not one that a GID once had.
	ip, err := OwnAddress(whole)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", ip.String())
	_, err = OwnAddress(verbs.NewDevice(
		&madeUp{verbs.DeviceInfo{Name: "closed0"},
			func() (verbs.ProviderContext, error) { return nil, syscall.EACCES }}))
	require.ErrorIs(t, err, syscall.EACCES)
}

func TestDevicesRemark(t *testing.T) {
	kernel := []deviceReport{{Provider: "usiw"}, {Provider: "ibverbs"}}
	require.Empty(t, (&Report{Libibverbs: true, all: true, Devices: kernel}).remark())
	require.Contains(t, (&Report{Libibverbs: true, all: true, Devices: kernel[:1]}).remark(),
		"the kernel has no RDMA device")
	require.Empty(t, (&Report{Libibverbs: true, Devices: kernel[:1]}).remark(), "only one was asked for")
	require.Contains(t, (&Report{Error: "built without cgo", all: true}).remark(), "not listed: built without cgo")
	require.Contains(t, (&Report{Libibverbs: true, Error: "no netlink"}).remark(), "not listed: no netlink")
}

// SPDX-License-Identifier: BSD-3-Clause

package devices

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
	"github.com/goverbs/goverbs/internal/rdmatest"
)

// output runs a program installed in the guest.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			out, err := exec.Command(path, args...).CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
			return string(out)
		}
	}
	require.Fail(t, "no "+name)
	return ""
}

// listed returns the entry of a device in the output of devices -v --json.
func listed(t *testing.T, name string) deviceReport {
	t.Helper()
	r := clitest.Run(t, "devices", "-v", "--json")
	require.Equal(t, clitest.Done, r.Code, r.Stderr)
	var list Report
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &list))
	require.True(t, list.Libibverbs)
	for _, d := range list.Devices {
		if d.Name == name {
			require.Empty(t, d.Error)
			return d
		}
	}
	require.Fail(t, "not listed: "+name)
	return deviceReport{}
}

// devinfoValues returns the output of ibv_devinfo -v for a device with one port: its values by
// name, and its GIDs.
func devinfoValues(t *testing.T, name string) (values map[string]string, gids []string) {
	t.Helper()
	values = make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^\s*([\w\[\] ]+):\s+(.+)$`).FindAllStringSubmatch(
		output(t, "ibv_devinfo", "-v", "-d", name), -1) {
		if strings.HasPrefix(m[1], "GID[") {
			gids = append(gids, m[2])
		} else {
			values[strings.TrimSpace(m[1])] = m[2]
		}
	}
	return values, gids
}

// The list of kernel devices agrees with ibv_devinfo, rdma and sysfs.
func TestKernelDevices(t *testing.T) {
	for _, name := range []string{"rxe0", "siw0"} {
		t.Run(name, func(t *testing.T) {
			rdmatest.KernelDevice(t, name)
			d := listed(t, name)
			want, gids := devinfoValues(t, name)
			require.Equal(t, "ibverbs", d.Provider)
			require.Contains(t, want["transport"], d.Transport+" (")
			require.Equal(t, want["node_guid"], d.NodeGUID)
			number := func(s string) float64 {
				s, _, _ = strings.Cut(s, " ")
				n, err := strconv.ParseUint(s, 0, 64)
				require.NoError(t, err)
				return float64(n) // as JSON has it
			}
			for _, limit := range []string{"vendor_id", "vendor_part_id", "hw_ver", "phys_port_cnt", "max_mr_size",
				"page_size_cap", "max_qp", "max_qp_wr", "device_cap_flags", "max_sge", "max_sge_rd", "max_cq",
				"max_cqe", "max_mr", "max_pd",
				"max_qp_rd_atom", "max_res_rd_atom", "max_qp_init_rd_atom", "max_mw", "max_ah", "max_srq", "max_srq_wr",
				"max_srq_sge", "max_pkeys", "local_ca_ack_delay"} {
				require.Equal(t, number(want[limit]), d.Attr[limit], limit)
			}
			require.Equal(t, want["fw_ver"], d.Attr["fw_ver"])
			require.Equal(t, want["sys_image_guid"], d.Attr["sys_image_guid"])
			require.Contains(t, want["atomic_cap"], d.Attr["atomic_cap"])

			require.Len(t, d.Ports, 1)
			p := d.Ports[0]
			require.Equal(t, want["state"], "PORT_"+strings.ToUpper(p.State)+" (4)")
			require.Contains(t, want["active_mtu"], fmt.Sprintf("%d (", p.MTU))
			require.Equal(t, want["link_layer"], p.LinkLayer)
			require.Equal(t, number(want["max_mtu"]), p.Attr["max_mtu"])
			for ours, theirs := range map[string]string{"gid_tbl_len": "gid_tbl_len", "max_msg_sz": "max_msg_sz",
				"pkey_tbl_len": "pkey_tbl_len", "lid": "port_lid", "sm_lid": "sm_lid", "lmc": "port_lmc"} {
				require.Equal(t, number(want[theirs]), p.Attr[ours], ours)
			}
			require.Contains(t, want["active_width"], fmt.Sprintf("(%v)", p.Attr["active_width"]))
			require.Contains(t, want["active_speed"], fmt.Sprintf("(%v)", p.Attr["active_speed"]))

			// ibv_devinfo omits the only entry of an iWARP device, which begins with the MAC
			// address.
			netdev := regexp.MustCompile(`netdev (\S+)`).FindStringSubmatch(
				output(t, "rdma", "link", "show", name+"/1"))[1]
			sysfs := filepath.Join("/sys/class/infiniband", name, "ports/1")
			for i, g := range p.GIDs {
				require.Equal(t, netdev, g.NetDev)
				text, err := os.ReadFile(filepath.Join(sysfs, "gids", strconv.Itoa(g.Index)))
				require.NoError(t, err)
				require.Equal(t, strings.TrimSpace(string(text)), g.GID)
				if name == "siw0" {
					require.Equal(t, "IB", g.Type)
					continue
				}
				ip, typ, _ := strings.Cut(gids[i], ", ")
				require.Equal(t, typ, g.Type)
				require.Equal(t, netip.MustParseAddr(ip), netip.MustParseAddr(g.GID))
			}
			require.Len(t, p.GIDs, map[string]int{"rxe0": len(gids), "siw0": 1}[name])

			native := map[string]string{
				"rxe0": "send send-inv send-imm write write-imm read fetch-add cmp-swap local-inv bind-mw",
				"siw0": "send send-inv write read",
			}[name]
			if name == "rxe0" && os.Getenv("BED_KERNEL") != "6.1" {
				native += " atomic-write"
			}
			for op, support := range d.Ops {
				want := "none"
				if strings.Contains(" "+native+" ", " "+op+" ") {
					want = "native"
				}
				require.Equal(t, want, support, op)
			}
			require.Len(t, d.Ops, 14)

			text := clitest.Run(t, "devices").Stdout
			has := map[string]string{"rxe0": "write-imm,fetch-add,cmp-swap", "siw0": "none"}[name]
			require.Regexp(t, `(?m)^`+name+` +ibverbs +`+d.Transport+` +`+d.NodeGUID+` +1 active +`+netdev+` +`+has+`$`,
				text)
			require.Regexp(t, `(?m)^usiw0 +usiw `, text)
			require.NotContains(t, clitest.Run(t, "devices", "--device", name).Stdout, "usiw0")
			require.Contains(t, clitest.Run(t, "devices", "--device", name).Stdout, name+" ")
		})
	}
}

// withNames replaces, in the output of ibv_devinfo, on-demand paging bits that only newer versions
// name.
func withNames(text string) string {
	unnamed := regexp.MustCompile(`(_odp_caps:\n(?:\t+SUPPORT_\w+\n)*)\t+Unknown flags: 0xC0\n`)
	const indent = "\t\t\t\t\t"
	return unnamed.ReplaceAllString(text, "${1}"+indent+"SUPPORT_FLUSH\n"+indent+"SUPPORT_ATOMIC_WRITE\n")
}

// For kernel devices -v prints exactly what ibv_devinfo -v prints, followed by a separate section.
func TestKernelDevinfo(t *testing.T) {
	for _, name := range []string{"rxe0", "siw0"} {
		t.Run(name, func(t *testing.T) {
			rdmatest.KernelDevice(t, name)
			want := output(t, "ibv_devinfo", "-v", "-d", name)
			r := clitest.Run(t, "devices", "-v", "--device", name)
			require.Equal(t, clitest.Done, r.Code, r.Stderr)
			got, section, found := strings.Cut(r.Stdout, "\tgoverbs:\n")
			require.True(t, found, "%s", r.Stdout)
			require.Equal(t, withNames(want), got)
			require.Regexp(t, `^\t\tprovider:\t+ibverbs\n\t\tmax_inline_data:\t+\d+\n(\t\tport 1 GID\[.*\n)+\t\toperations:\n(\t\t\t[a-z0-9-]+:\t+(native|none)\n){14}\n$`,
				section)
		})
	}
}

// A device is listed even without the permission to open it.
func TestKernelDevicesDenied(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	nodes, err := filepath.Glob("/dev/infiniband/uverbs*")
	require.NoError(t, err)
	require.NotEmpty(t, nodes)
	for _, node := range nodes {
		fi, err := os.Stat(node)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(node, 0o600))
		t.Cleanup(func() { require.NoError(t, os.Chmod(node, fi.Mode().Perm())) })
	}
	cmd := exec.Command(clitest.Program, "devices")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	require.NoError(t, err)
	// The errno comes from libibverbs' last attempt, which uses another path.
	require.Regexp(t, `(?m)^rxe0 +ibverbs +InfiniBand .* \? \(verbs: Open on rxe0: ibv_open_device: .*\)$`, string(out))
	require.Regexp(t, `(?m)^usiw0 +usiw +iWARP .* all$`, string(out))
}

// SPDX-License-Identifier: BSD-3-Clause

package main

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
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/rdmatest"
)

// kernelAddress is where the guest's devices are reached.
var kernelAddress = map[string][2]string{"rxe0": {"10.78.0.1", "fd00:78::1"}, "siw0": {"10.77.0.1", "fd00:77::1"}}

// output runs a program of the guest's.
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

// listed returns what devices -v --json says of a device.
func listed(t *testing.T, name string) deviceReport {
	t.Helper()
	r := goverbs(t, "devices", "-v", "--json")
	require.Equal(t, exitDone, r.code, r.stderr)
	var list listReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &list))
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

// devinfo is what ibv_devinfo -v says of a device with one port: its values by their names, and its GIDs.
func devinfo(t *testing.T, name string) (values map[string]string, gids []string) {
	t.Helper()
	values = make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^\s*([\w\[\] ]+):\s+(.+)$`).FindAllStringSubmatch(output(t, "ibv_devinfo", "-v", "-d", name), -1) {
		if strings.HasPrefix(m[1], "GID[") {
			gids = append(gids, m[2])
		} else {
			values[strings.TrimSpace(m[1])] = m[2]
		}
	}
	return values, gids
}

// What is listed of the kernel's devices is what ibv_devinfo, rdma and sysfs say.
func TestKernelDevices(t *testing.T) {
	for _, name := range []string{"rxe0", "siw0"} {
		t.Run(name, func(t *testing.T) {
			rdmatest.KernelDevice(t, name)
			d := listed(t, name)
			want, gids := devinfo(t, name)
			require.Equal(t, "ibverbs", d.Provider)
			require.Contains(t, want["transport"], d.Transport+" (")
			require.Equal(t, want["node_guid"], d.NodeGUID)
			number := func(s string) float64 {
				s, _, _ = strings.Cut(s, " ")
				n, err := strconv.ParseUint(s, 0, 64)
				require.NoError(t, err)
				return float64(n) // as JSON has it
			}
			for _, limit := range []string{"vendor_id", "vendor_part_id", "hw_ver", "phys_port_cnt", "max_mr_size", "page_size_cap",
				"max_qp", "max_qp_wr", "device_cap_flags", "max_sge", "max_sge_rd", "max_cq", "max_cqe", "max_mr", "max_pd",
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

			// ibv_devinfo leaves out the one row of an iWARP device, which begins with the MAC address.
			netdev := regexp.MustCompile(`netdev (\S+)`).FindStringSubmatch(output(t, "rdma", "link", "show", name+"/1"))[1]
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
			for op, support := range d.Ops {
				want := "none"
				if strings.Contains(" "+native+" ", " "+op+" ") {
					want = "native"
				}
				require.Equal(t, want, support, op)
			}
			require.Len(t, d.Ops, 13)

			text := goverbs(t, "devices").stdout
			has := map[string]string{"rxe0": "write-imm,fetch-add,cmp-swap", "siw0": "none"}[name]
			require.Regexp(t, `(?m)^`+name+` +ibverbs +`+d.Transport+` +`+d.NodeGUID+` +1 active +`+netdev+` +`+has+`$`, text)
			require.Regexp(t, `(?m)^usiw0 +siw `, text)
			require.NotContains(t, goverbs(t, "devices", "--device", name).stdout, "usiw0")
			require.Contains(t, goverbs(t, "devices", "--device", name).stdout, name+" ")
		})
	}
}

// Without the right to open a device it is listed all the same.
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
	cmd := exec.Command(program, "devices")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	require.NoError(t, err)
	// The errno is that of libibverbs' last attempt, which is at another path.
	require.Regexp(t, `(?m)^rxe0 +ibverbs +InfiniBand .* \? \(verbs: Open on rxe0: ibv_open_device: .*\)$`, string(out))
	require.Regexp(t, `(?m)^usiw0 +siw +iWARP .* all$`, string(out))
}

// kernelSteps is what a demo between two halves on a device of the kernel must say, but for the operations.
var kernelSteps = map[string]map[string]stepResult{
	"rxe0": {
		"write-imm":       {Without: "device has no imm64"},
		"imm64":           {Skipped: "device has no imm64"},
		"masked-fetchadd": {Skipped: "device has no masked-fetch-add"},
		"masked-cmpswap":  {Skipped: "device has no masked-cmp-swap"},
		"lock":            {Without: "device has no masked-fetch-add, masked-cmp-swap"},
		"counter":         {Without: "device has no masked-fetch-add, masked-cmp-swap"},
	},
	"siw0": {
		"send":            {Without: "device has no local-inv, bind-mw"},
		"write-imm":       {Skipped: "device has no write-imm"},
		"imm64":           {Skipped: "device has no imm64"},
		"masked-fetchadd": {Skipped: "device has no fetch-add, masked-fetch-add"},
		"masked-cmpswap":  {Skipped: "device has no cmp-swap, masked-cmp-swap"},
		"lock":            {Skipped: "device has no fetch-add, cmp-swap"},
		"counter":         {Skipped: "device has no fetch-add, cmp-swap"},
	},
}

// requireKernelSteps asserts that every step has been verified, or skipped as kernelSteps says of the device.
func requireKernelSteps(t *testing.T, r demoResult, device string, lockOps int, whose string) {
	t.Helper()
	require.True(t, r.OK)
	full := map[string]int{"connect": 1, "send": 2000, "write": 1024, "read": 1024, "write-imm": 2000, "imm64": 2000,
		"masked-fetchadd": 2000, "masked-cmpswap": 2000, "lock": lockOps, "counter": lockOps, "close": 1}
	for _, s := range r.Steps {
		want := kernelSteps[device][s.Name]
		want.Name, want.OK = s.Name, true
		if want.Skipped == "" {
			want.Ops = full[s.Name]
		}
		want.Skipped = strings.Replace(want.Skipped, "device", whose, 1)
		want.Without = strings.Replace(want.Without, "device", whose, 1)
		require.Equal(t, want, s)
	}
}

func TestKernelDemo(t *testing.T) {
	for _, device := range []string{"rxe0", "siw0"} {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			r := goverbs(t, "demo", "--json", "--device", device, "--clients", "4", "--ops", "50")
			require.Equal(t, exitDone, r.code, r.stderr)
			require.Empty(t, r.stderr)
			got := decodeResult(t, r.stdout)
			require.Equal(t, device, got.Device)
			requireKernelSteps(t, got, device, 200, "device")
			require.Len(t, got.PIDs, map[string]int{"rxe0": 2 + 4, "siw0": 2}[device])
			nothingRuns(t)
		})
	}
	t.Run("broken", func(t *testing.T) {
		rdmatest.KernelDevice(t, "rxe0")
		r := goverbs(t, "demo", "--json", "--device", "rxe0", "--clients", "2", "--ops", "20", "--break", "lock")
		require.Equal(t, exitFailed, r.code)
		got := decodeResult(t, r.stdout)
		requireSteps(t, got, "lock")
		require.Contains(t, r.stderr, "goverbs demo: not verified: lock\n")
	})
}

// The user-space RNIC and kernel siw speak the same protocol.
func TestKernelDemoHalves(t *testing.T) {
	rdmatest.KernelDevice(t, "siw0")
	l := start(t, "demo", "--device", "siw0", "--listen", "10.77.0.1:0")
	text := l.stdout.await(t, "siw0 (ibverbs)\n")
	c := goverbs(t, "demo", "--json", "--device", "usiw0", "--connect", regexp.MustCompile(`10\.77\.0\.1:\d+`).FindString(text))
	require.Equal(t, exitDone, c.code, c.stderr)
	got := decodeResult(t, c.stdout)
	require.Equal(t, "usiw0", got.Device)
	requireKernelSteps(t, got, "siw0", 0, "the other half's device")
	r := l.end(t)
	require.Equal(t, exitDone, r.code, r.stderr)
	require.Empty(t, r.stderr)
	require.Regexp(t, `\nconnect +1 op +ok  siw0 \(ibverbs\), 10\.77\.0\.1:\d+ to 10\.77\.0\.1:\d+\n`, r.stdout)
	require.Regexp(t, `\nsend .* ok  device has no local-inv, bind-mw\n`, r.stdout)
	require.Regexp(t, `\nlock +skipped  device has no fetch-add, cmp-swap\n`, r.stdout)
	require.Contains(t, r.stdout, "\nverified: 5 of 11 steps; skipped: write-imm, imm64, masked-fetchadd, masked-cmpswap, lock, counter\n")
}

// The halves can be started in any order here too, and what cannot be is said by name.
func TestKernelErrors(t *testing.T) {
	rdmatest.KernelDevice(t, "rxe0")
	rdmatest.KernelDevice(t, "siw0")
	for _, device := range []string{"rxe0", "siw0"} {
		c := start(t, "demo", "--device", device, "--connect", kernelAddress[device][0]+":7307")
		c.stderr.await(t, "trying for 10s")
		c.interrupt(t, syscall.SIGTERM)
	}
	r := goverbs(t, "demo", "--device", "mlx5_0")
	require.Equal(t, exitUsage, r.code)
	require.Regexp(t, `present: (rxe0, siw0|siw0, rxe0), usiw0\)`, r.stderr)
	r = goverbs(t, "demo", "--device", "rxe0", "--listen", "10.77.0.1:0")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, `"siw0", not of "rxe0"`)
	r = goverbs(t, "demo", "--device", "siw0", "--connect", "10.78.0.1:7307")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, `"rxe0", not of "siw0"`)
	require.Less(t, r.took, 10*time.Second)
}

// kernelRPing starts a server on a device at an address and returns its port.
func kernelRPing(t *testing.T, device, address string, args ...string) (*running, string) {
	t.Helper()
	return rpingServer(t, append([]string{"--device", device, "-a", address}, args...)...)
}

func TestKernelRPing(t *testing.T) {
	for _, device := range []string{"rxe0", "siw0"} {
		for family, address := range kernelAddress[device] {
			t.Run(device+[]string{" IPv4", " IPv6"}[family], func(t *testing.T) {
				rdmatest.KernelDevice(t, device)
				s, port := kernelRPing(t, device, address, "-vV", "-C10", "-S1000")
				client := []string{"rping", "-cvV", "--device", device, "-a", address, "-I", address, "-p", port, "-C10", "-S1000"}
				got := goverbs(t, client...)
				require.Equal(t, exitDone, got.code, got.stderr)
				require.Equal(t, pingLines("ping data: ", 10, 1000), got.stdout)
				require.Equal(t, clientDone, got.stderr)
				r := s.end(t)
				require.Equal(t, exitDone, r.code, r.stderr)
				require.Equal(t, pingLines("server ping data: ", 10, 1000), dataLines("server ping data: ", r.stdout))
				require.Equal(t, serverGone, r.stderr)
				require.Contains(t, r.stdout, "device "+device+" (ibverbs)\n")

				// Now nobody listens.
				got = goverbs(t, client...)
				require.Equal(t, exitFailed, got.code)
				require.Contains(t, got.stderr, "cma event RDMA_CM_EVENT_REJECTED, error "+map[string]string{"rxe0": "8", "siw0": "-111"}[device]+"\n")
			})
		}
	}
}

func TestKernelRPingEnds(t *testing.T) {
	for _, device := range []string{"rxe0", "siw0"} {
		t.Run(device, func(t *testing.T) {
			rdmatest.KernelDevice(t, device)
			address := kernelAddress[device][0]
			s, port := kernelRPing(t, device, address, "-C4")
			c := goverbs(t, "rping", "-cd", "-C3", "--device", "auto", "-a", address, "-p", port)
			require.Equal(t, exitDone, c.code, c.stderr)
			require.Contains(t, c.stdout, "device "+device+" (ibverbs)\n", "the one that owns the address")
			r := s.end(t)
			require.Equal(t, exitFailed, r.code)
			require.Equal(t, serverGone+"goverbs rping: the peer disconnected after 3 of 4 pings\n", r.stderr)

			s, port = kernelRPing(t, device, address, "-S99")
			c = goverbs(t, "rping", "-c", "-S100", "--device", device, "-a", address, "-p", port)
			require.Equal(t, exitFailed, c.code)
			require.Contains(t, c.stderr, "client DISCONNECT EVENT...\nwait for RDMA_WRITE_ADV state 10\n")
			r = s.end(t)
			require.Equal(t, exitFailed, r.code)
			require.Equal(t, "goverbs rping: ping 0: the client has 100 octets, the server room for 1 to 99 (-S)\n", r.stderr)

			s, port = kernelRPing(t, device, address, "-P", "-V", "-S200")
			endless := start(t, "rping", "-cv", "--device", device, "-a", address, "-p", port)
			endless.stdout.await(t, "\n")
			var clients []*running
			for i := range 3 {
				clients = append(clients, start(t, "rping", "-cvV", "-C20", "-S", strconv.Itoa(100+i), "--device", device, "-a", address, "-p", port))
			}
			for i, c := range clients {
				r := c.end(t)
				require.Equal(t, exitDone, r.code, r.stderr)
				require.Equal(t, pingLines("ping data: ", 20, 100+i), r.stdout)
			}
			// One that is killed disturbs nobody.
			require.NoError(t, endless.cmd.Process.Kill())
			_ = endless.cmd.Wait()
			last := goverbs(t, "rping", "-cV", "-C3", "--device", device, "-a", address, "-p", port)
			require.Equal(t, exitDone, last.code, last.stderr)
			s.interrupt(t, syscall.SIGTERM)
			nothingRuns(t)
		})
	}
}

// inHost starts the program in a network namespace.
func inHost(t *testing.T, host string, args ...string) *running {
	t.Helper()
	was := program
	defer func() { program = was }()
	path, err := exec.LookPath("ip")
	if err != nil {
		path = "/usr/sbin/ip"
	}
	program = path
	return start(t, append([]string{"netns", "exec", host, was}, args...)...)
}

// The halves on two hosts: kernel siw with kernel siw, and with the user-space RNIC; rxe.
func TestKernelTwoHosts(t *testing.T) {
	for _, d := range []string{"siw1", "siw2", "rxe1", "rxe2"} {
		rdmatest.KernelDevice(t, d)
	}
	for _, c := range []struct{ client, server string }{{"siw2", "siw1"}, {"siw2", "usiw0"}} {
		t.Run(c.client+" to "+c.server, func(t *testing.T) {
			l := inHost(t, "h1", "demo", "--device", c.server, "--listen", "10.77.0.1:7306")
			l.stdout.await(t, "listening on")
			r := inHost(t, "h2", "demo", "--json", "--device", c.client, "--connect", "10.77.0.1:7306").end(t)
			require.Equal(t, exitDone, r.code, r.stderr)
			got := decodeResult(t, r.stdout)
			require.Equal(t, c.client, got.Device)
			requireKernelSteps(t, got, "siw0", 0, "device")
			r = l.end(t)
			require.Equal(t, exitDone, r.code, r.stderr)
			require.Regexp(t, `\nconnect .* ok  `+c.server+` \(.*\), 10\.77\.0\.2:\d+ to 10\.77\.0\.1:7306\n`, r.stdout)
		})
	}
	t.Run("rping siw2 to siw1", func(t *testing.T) {
		s := inHost(t, "h1", "rping", "-sdvV", "-C5", "--device", "siw1", "-a", "fd00:77::1")
		s.stdout.await(t, "listening on")
		c := inHost(t, "h2", "rping", "-cvV", "-C5", "--device", "siw2", "-a", "fd00:77::1").end(t)
		require.Equal(t, exitDone, c.code, c.stderr)
		require.Equal(t, pingLines("ping data: ", 5, 64), c.stdout)
		r := s.end(t)
		require.Equal(t, exitDone, r.code, r.stderr)
	})
	t.Run("rping rxe1 to rxe2", func(t *testing.T) {
		s, port := kernelRPing(t, "rxe2", "10.78.0.2", "-V", "-C5")
		c := goverbs(t, "rping", "-cvV", "-C5", "--device", "rxe1", "-I", "10.78.0.1", "-a", "10.78.0.2", "-p", port)
		require.Equal(t, exitDone, c.code, c.stderr)
		require.Equal(t, pingLines("ping data: ", 5, 64), c.stdout)
		r := s.end(t)
		require.Equal(t, exitDone, r.code, r.stderr)
		require.Contains(t, r.stdout, "device rxe2 (ibverbs)\n")
	})
	t.Run("demo rxe1 to rxe2", func(t *testing.T) {
		l := start(t, "demo", "--device", "rxe2", "--listen", "10.78.0.2:7306")
		l.stdout.await(t, "listening on")
		r := goverbs(t, "demo", "--json", "--device", "rxe1", "--connect", "10.78.0.2:7306", "--clients", "2", "--ops", "20")
		require.Equal(t, exitDone, r.code, r.stderr)
		requireKernelSteps(t, decodeResult(t, r.stdout), "rxe0", 40, "device")
		require.Equal(t, exitDone, l.end(t).code)
	})
}

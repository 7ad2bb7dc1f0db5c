// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func TestDevices(t *testing.T) {
	r := goverbs(t, "devices")
	require.Equal(t, exitDone, r.code)
	require.Empty(t, r.stderr)
	out := lines(t, r.stdout)
	require.Len(t, out, 2)
	require.Equal(t, []string{"DEVICE", "PROVIDER", "TRANSPORT", "NODE", "GUID", "PORTS", "RFC", "7306"}, strings.Fields(out[0]))
	require.Regexp(t, `^usiw0 +siw +iWARP +([0-9a-f]{4}:){3}[0-9a-f]{4} +1 active +all$`, out[1])
}

func TestDevicesJSON(t *testing.T) {
	r := goverbs(t, "devices", "--json")
	require.Equal(t, exitDone, r.code)
	require.Empty(t, r.stderr)
	require.Len(t, lines(t, r.stdout), 1)
	var got struct {
		Devices []map[string]any `json:"devices"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Len(t, got.Devices, 1)
	d := got.Devices[0]
	require.Len(t, d, 6)
	require.Equal(t, "usiw0", d["name"])
	require.Equal(t, "siw", d["provider"])
	require.Equal(t, "iWARP", d["transport"])
	require.Regexp(t, `^([0-9a-f]{4}:){3}[0-9a-f]{4}$`, d["node_guid"])
	require.Equal(t, []any{map[string]any{"port": 1.0, "state": "active", "active_mtu": 4096.0, "link_layer": "Ethernet"}}, d["ports"])
	ops := d["ops"].(map[string]any)
	n := 0
	for op := range verbs.Ops() {
		want := "native"
		if op == verbs.OpSendImm {
			want = "none"
		}
		require.Equal(t, want, ops[op.String()], op)
		n++
	}
	require.Len(t, ops, n)
}

func TestDevicesVerbose(t *testing.T) {
	r := goverbs(t, "devices", "-v")
	require.Equal(t, exitDone, r.code)
	for _, want := range []string{"device: usiw0\n", "max_qp: ", "max_inline_data: ", "ATOMIC_GLOB", "max_msg_sz: ", "masked-cmp-swap:", "native"} {
		require.Contains(t, r.stdout, want)
	}
	r = goverbs(t, "devices", "--verbose", "--json")
	require.Equal(t, exitDone, r.code)
	var got struct {
		Devices []struct {
			Attr  map[string]any
			Ports []struct{ Attr map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.EqualValues(t, 65536, got.Devices[0].Attr["max_qp"])
	require.Equal(t, "active", got.Devices[0].Ports[0].Attr["state"])
}

func TestGUIDText(t *testing.T) {
	require.Equal(t, "0123:4567:89ab:cdef", guidText(0x0123456789abcdef))
	require.Equal(t, "0000:0000:0000:0001", guidText(1))
}

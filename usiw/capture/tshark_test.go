// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/iwarp/ddp"
	"github.com/goverbs/goverbs/internal/iwarp/mpa"
	"github.com/goverbs/goverbs/internal/iwarp/rdmap"
)

// tsharkArgs make tshark look for MPA first, check every checksum and leave payloads alone.
var tsharkArgs = []string{"-n", "-o", "tcp.try_heuristic_first:TRUE",
	"-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE",
	"--disable-protocol", "smb_direct", "--disable-protocol", "rpcordma"}

// tshark runs tshark on a file with the given further arguments. On a machine without tshark the
// tests fail, because nothing else shows that other programs understand the files.
func tshark(t *testing.T, file []byte, args ...string) string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatal("tshark, which judges the captures, is not installed; on Debian, as root: " +
			"DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends tshark")
	}
	require.NoError(t, err)
	dir := t.TempDir()
	name := filepath.Join(dir, "capture.pcapng")
	require.NoError(t, os.WriteFile(name, file, 0o600))
	cmd := exec.CommandContext(testContext(t), program, append(append([]string{"-r", name}, tsharkArgs...), args...)...)
	// Ignore the preferences of the user who runs the tests.
	cmd.Env = append(os.Environ(), "WIRESHARK_CONFIG_DIR="+dir, "HOME="+dir, "LC_ALL=C.UTF-8", "TZ=UTC")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "tshark: %s", &stderr)
	return string(out)
}

// fieldNames are the fields that tests examine.
var fieldNames = strings.Fields(`
	frame.number frame.protocols frame.comment tcp.stream tcp.srcport tcp.payload tcp.checksum.status ip.checksum.status
	tcp.analysis.flags _ws.malformed
	iwarp_mpa.req iwarp_mpa.rep iwarp_mpa.marker_flag iwarp_mpa.crc_flag iwarp_mpa.rej_flag iwarp_mpa.rev iwarp_mpa.privatedata
	iwarp_mpa.ulpdulength iwarp_mpa.crc_check iwarp_mpa.crc iwarp_mpa.marker_fpduptr
	iwarp_ddp.tagged_flag iwarp_ddp.last_flag iwarp_ddp.stag iwarp_ddp.tagged_offset iwarp_ddp.qn iwarp_ddp.msn iwarp_ddp.mo
	iwarp_rdma.opcode iwarp_rdma.inval_stag iwarp_rdma.sinkstag iwarp_rdma.sinkto iwarp_rdma.rdmardsz iwarp_rdma.srcstag
	iwarp_rdma.srcto
	iwarp_rdma.term_layer iwarp_rdma.term_etype_rdma iwarp_rdma.term_etype_ddp iwarp_rdma.term_etype_llp
	iwarp_rdma.term_errcode_rdma iwarp_rdma.term_errcode_ddp_tagged iwarp_rdma.term_errcode_ddp_untagged
	iwarp_rdma.term_errcode_llp iwarp_rdma.term_errcode iwarp_rdma.term_hdrct_m iwarp_rdma.hdrct_d iwarp_rdma.hdrct_r
	iwarp_rdma.term_ddp_seg_len iwarp_rdma.term_ddp_h iwarp_rdma.term_rdma_h
	iwarp_rdma.atomic.reserved iwarp_rdma.atomic.opcode iwarp_rdma.atomic.request_identifier iwarp_rdma.atomic.remote_stag
	iwarp_rdma.atomic.remote_tagged_offset iwarp_rdma.atomic.add_data iwarp_rdma.atomic.add_mask iwarp_rdma.atomic.swap_data
	iwarp_rdma.atomic.swap_mask iwarp_rdma.atomic.compare_data iwarp_rdma.atomic.compare_mask
	iwarp_rdma.atomic.original_request_identifier iwarp_rdma.atomic.original_remote_data_value
	iwarp_rdma.send.reassembled.length`)

// row is what tshark reports about a packet: the fields that are present.
type row map[string]string

// rows returns what tshark reports about every packet with data.
func rows(t *testing.T, file []byte) []row {
	t.Helper()
	args := []string{"-Y", "tcp.len > 0", "-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"}
	for _, f := range fieldNames {
		args = append(args, "-e", f)
	}
	var all []row
	for line := range strings.Lines(tshark(t, file, args...)) {
		r := make(row)
		values := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, values, len(fieldNames))
		for i, v := range values {
			if v != "" {
				r[fieldNames[i]] = v
			}
		}
		all = append(all, r)
	}
	return all
}

// number returns the value of a field.
func (r row) number(t *testing.T, field string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(r[field], 0, 64)
	require.NoError(t, err, "%s of packet %s", field, r["frame.number"])
	return v
}

// bytes returns the value of a byte field.
func (r row) bytes(t *testing.T, field string) []byte {
	t.Helper()
	b, err := hex.DecodeString(r[field])
	require.NoError(t, err, "%s of packet %s", field, r["frame.number"])
	return b
}

// verdict is what tshark finds in a whole file.
type verdict struct{ good, bad int } // FPDUs by their CRC

// judge reads a file with tshark and with the tests' own reader. It requires what holds for every
// file: TCP without errors, every packet with data recognised, nothing malformed.
func judge(t *testing.T, file []byte) ([]row, verdict) {
	t.Helper()
	follow(t, readFile(t, file))
	all := rows(t, file)
	for _, r := range all {
		where := "packet " + r["frame.number"]
		require.NotContains(t, r, "tcp.analysis.flags", where)
		require.Equal(t, "1", r["tcp.checksum.status"], where)
		if sum, v4 := r["ip.checksum.status"]; v4 {
			require.Equal(t, "1", sum, where)
		}
		require.Contains(t, r["frame.protocols"], ":iwarp_mpa", where)
		if _, malformed := r["_ws.malformed"]; malformed {
			require.True(t, r.isEmptySend(t), "%s is malformed", where)
		}
		_, req := r["iwarp_mpa.req"]
		_, rep := r["iwarp_mpa.rep"]
		_, length := r["iwarp_mpa.ulpdulength"]
		require.True(t, req != rep && !length || !req && !rep && length, "%s has a frame or an FPDU", where)
		if length {
			require.NotContains(t, r["iwarp_mpa.ulpdulength"], ",", "%s has one FPDU", where)
			require.Contains(t, r, "iwarp_rdma.opcode", where)
		}
	}
	text := tshark(t, file, "-V")
	return all, verdict{strings.Count(text, "(Good CRC32)"), strings.Count(text, "(Bad CRC32")}
}

// isEmptySend reports whether the packet is a Send of length zero, which tshark may find malformed.
func (r row) isEmptySend(t *testing.T) bool {
	op := rdmap.Opcode(r.number(t, "iwarp_rdma.opcode"))
	return op >= rdmap.OpSend && op <= rdmap.OpSendSEInv && r.number(t, "iwarp_mpa.ulpdulength") == ddp.UntaggedLen
}

// message is an FPDU that an end sent: what tshark must report, by field name, and its payload.
type message struct {
	op      rdmap.Opcode
	fields  map[string]uint64
	payload []byte // nil = not checked
}

// expect compares the FPDUs of one end of a connection, in order, with the messages that were sent.
func expect(t *testing.T, all []row, from string, markers bool, want []message) {
	t.Helper()
	pos, k := uint64(0), 0
	for _, r := range all {
		if r["tcp.srcport"] != from || r["iwarp_mpa.ulpdulength"] == "" {
			continue
		}
		where := "packet " + r["frame.number"]
		require.Greater(t, len(want), k, "%s is one too many", where)
		m := want[k]
		k++
		require.Equal(t, m.op, rdmap.Opcode(r.number(t, "iwarp_rdma.opcode")), where)
		for f, v := range m.fields {
			require.Equal(t, v, r.number(t, f), "%s of %s, %v", f, where, m.op)
		}
		fpdu := r.bytes(t, "tcp.payload")
		if markers {
			raw := fpdu
			var err error
			fpdu, err = mpa.StripMarked(nil, raw, pos)
			require.NoError(t, err)
			pos += uint64(len(raw))
		}
		header := ddp.UntaggedLen
		if r.number(t, "iwarp_ddp.tagged_flag") != 0 {
			header = ddp.TaggedLen
		}
		if m.payload != nil {
			got := fpdu[mpa.LengthLen+header : mpa.LengthLen+r.number(t, "iwarp_mpa.ulpdulength")]
			require.True(t, bytes.Equal(m.payload, got), "payload of %s, %v", where, m.op)
		}
	}
	require.Equal(t, len(want), k, "FPDUs of port %s", from)
}

// frames returns the Request and the Reply.
func frames(t *testing.T, all []row) (req, rep row) {
	t.Helper()
	for _, r := range all {
		if _, ok := r["iwarp_mpa.req"]; ok {
			require.Nil(t, req)
			req = r
		}
		if _, ok := r["iwarp_mpa.rep"]; ok {
			require.Nil(t, rep)
			rep = r
		}
	}
	require.NotNil(t, req)
	require.NotNil(t, rep)
	return req, rep
}

// stream returns the packets of the i-th connection of a file.
func stream(all []row, i int) []row {
	return slices.DeleteFunc(slices.Clone(all), func(r row) bool { return r["tcp.stream"] != strconv.Itoa(i) })
}

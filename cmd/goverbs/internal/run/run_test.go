// SPDX-License-Identifier: BSD-3-Clause

package run

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/internal/runenv"
	"github.com/goverbs/goverbs/usiw"
)

func touch(t *testing.T, name string, mode fs.FileMode, content string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(content), mode))
	require.NoError(t, os.Chmod(name, mode))
	return name
}

// TestLibraries: the first directory that has both libraries, or an error that names what is
// missing from where.
func TestLibraries(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	touch(t, filepath.Join(a, runenv.Shim), 0o644, "")
	_, err := libraries(a, b)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "no "+runenv.RNIC+" in "+a)
	require.ErrorContains(t, err, "no "+runenv.Shim+" and "+runenv.RNIC+" in "+b)
	require.ErrorContains(t, err, "make preload")
	touch(t, filepath.Join(b, runenv.Shim), 0o644, "")
	touch(t, filepath.Join(b, runenv.RNIC), 0o644, "")
	dir, err := libraries(a, b)
	require.NoError(t, err)
	require.Equal(t, b, dir)
	touch(t, filepath.Join(a, runenv.RNIC), 0o644, "")
	dir, err = libraries(a, b)
	require.NoError(t, err)
	require.Equal(t, a, dir)
}

// TestEnvironment: chosen options set their variables, others are removed, and the rest of the
// environment is unchanged.
func TestEnvironment(t *testing.T) {
	pid := runenv.PID + "=" + strconv.Itoa(os.Getpid())
	env, err := Options{}.environ(
		[]string{"A=1", "LD_PRELOAD=/other.so", runenv.MTU + "=1500", runenv.KeepReal + "=1", runenv.Verbose + "=1"},
		"/d/shim.so")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"A=1", "LD_PRELOAD=/d/shim.so:/other.so", runenv.Verbose + "=1", pid}, env)
	env, err = Options{Device: "ib:usiw0", Addr: netip.MustParseAddr("::1"), MTU: 1500, CRC: usiw.Off,
		Pcap: "/x.pcapng", KeepReal: true}.environ(env, "/d/shim.so")
	require.NoError(t, err)
	require.ElementsMatch(t,
		[]string{"A=1", "LD_PRELOAD=/d/shim.so:/other.so", runenv.Verbose + "=1", pid, runenv.Device + "=ib:usiw0",
			runenv.Addr + "=::1", runenv.MTU + "=1500", runenv.CRC + "=off", runenv.Pcap + "=/x.pcapng",
			runenv.KeepReal + "=1"}, env)
	_, err = Options{}.environ(nil, "/a dir/shim.so")
	require.ErrorContains(t, err, "/a dir/shim.so")
}

// TestFind: programs into which nothing can be preloaded are rejected.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	_, err := find("no-such-program")
	require.EqualError(t, err, "no-such-program: not found in PATH")
	status := func(want int, err error) {
		t.Helper()
		var own interface{ Status() int }
		require.ErrorAs(t, err, &own)
		require.Equal(t, want, own.Status())
	}
	status(127, err)
	_, err = find(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	status(127, err)
	_, err = find(touch(t, filepath.Join(dir, "text"), 0o644, "x"))
	require.ErrorIs(t, err, fs.ErrPermission)
	status(126, err)
	script := touch(t, filepath.Join(dir, "script"), 0o755, "#! /bin/sh\n")
	file, err := find(script)
	require.NoError(t, err)
	require.Equal(t, script, file)
	loop := filepath.Join(dir, "loop")
	_, err = find(touch(t, loop, 0o755, "#!"+loop+"\n"))
	require.NoError(t, err, "execve says it")
}

// TestFindOther: a program for another processor is reported as such, before any other fault.
func TestFindOther(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("goverbs run needs Linux")
	}
	own, err := elf.Open("/proc/self/exe")
	require.NoError(t, err)
	defer own.Close()
	for machine, want := range map[elf.Machine]string{elf.EM_S390: "is for EM_S390 (" + own.Class.String() + ")",
		own.Machine: "is linked statically"} {
		var b bytes.Buffer
		if own.Class == elf.ELFCLASS64 {
			h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Ehsize: 64,
				Phentsize: 56}
			copy(h.Ident[:], elf.ELFMAG+string([]byte{byte(own.Class), byte(own.Data), 1}))
			require.NoError(t, binary.Write(&b, own.ByteOrder, h))
		} else {
			h := elf.Header32{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Ehsize: 52,
				Phentsize: 32}
			copy(h.Ident[:], elf.ELFMAG+string([]byte{byte(own.Class), byte(own.Data), 1}))
			require.NoError(t, binary.Write(&b, own.ByteOrder, h))
		}
		_, err := find(touch(t, filepath.Join(t.TempDir(), "program"), 0o755, b.String()))
		require.ErrorContains(t, err, want)
	}
}

// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/verbs"
)

func TestGUID(t *testing.T) {
	a, err := New(Config{})
	require.NoError(t, err)
	defer a.Close()
	b, err := New(Config{})
	require.NoError(t, err)
	defer b.Close()
	first := a.Device().Info()
	require.NotEqual(t, first.NodeGUID, b.Device().Info().NodeGUID)
	require.NoError(t, a.Close())
	again, err := New(Config{Name: first.Name})
	require.NoError(t, err)
	defer again.Close()
	require.Equal(t, first.NodeGUID, again.Device().Info().NodeGUID)

	seen := make(map[verbs.GUID]bool)
	for _, host := range []string{"machine 1", "machine 2", "boot 1", ""} {
		for _, name := range []string{"usiw0", "usiw1", "", "usiw"} {
			g := nameGUID(host, name)
			require.EqualValues(t, 2, g>>56&3, "locally administered, and no group")
			require.False(t, seen[g])
			seen[g] = true
		}
	}
	// A later release must not change the GUIDs of hosts.
	require.Equal(t, verbs.GUID(0x22d3f29bc156933d), nameGUID("machine 0123456789abcdef0123456789abcdef", "usiw0"))
}

func TestHostIdentity(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	none := func() (string, error) { return "", errors.New("no name") }
	named := func() (string, error) { return "web-7", nil }
	files := func(content map[string]string) func(string) ([]byte, error) {
		return func(file string) ([]byte, error) {
			if text, ok := content[file]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		}
	}
	const etc, dbus = "/etc/machine-id", "/var/lib/dbus/machine-id"
	for _, c := range []struct {
		files    map[string]string
		hostname func() (string, error)
		want     string
	}{
		{map[string]string{etc: id + "\n", dbus: "f" + id[1:] + "\n", bootID: "b\n"}, named, "machine " + id},
		{map[string]string{etc: "", dbus: id + "\n", bootID: "b\n"}, named, "machine " + id},
		{map[string]string{dbus: id}, none, "machine " + id},
		{map[string]string{etc: "uninitialized\n", bootID: "b\n"}, named, "boot b web-7"},
		{map[string]string{bootID: "b\n"}, named, "boot b web-7"},
	} {
		require.Equal(t, c.want, identify(files(c.files), c.hostname))
	}
	// With less than this, two hosts could be mistaken for one.
	for _, c := range []struct {
		files    map[string]string
		hostname func() (string, error)
	}{{nil, named}, {map[string]string{bootID: "b\n"}, none}} {
		one, two := identify(files(c.files), c.hostname), identify(files(c.files), c.hostname)
		require.Regexp(t, `^random .{20,}$`, one)
		require.NotEqual(t, one, two)
	}
}

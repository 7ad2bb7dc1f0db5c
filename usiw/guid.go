// SPDX-License-Identifier: BSD-3-Clause

package usiw

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"strings"
	"sync"

	"github.com/goverbs/goverbs/verbs"
)

// The files that identify the host. machineIDs are the same file for systemd and for D-Bus
// (machine-id(5)).
var machineIDs = []string{"/etc/machine-id", "/var/lib/dbus/machine-id"}

const bootID = "/proc/sys/kernel/random/boot_id"

// guidKey makes GUIDs something that only this package derives from the identity of a host.
const guidKey = "GUID of the user-space RNIC of github.com/goverbs/goverbs"

// nameGUID returns the GUID of the NIC of a name on a host. It is the same in every process and
// after a restart, as that of a network card is, and differs for different names and hosts. It is a
// locally administered EUI-64, because it comes from no manufacturer: bit 1 of the first byte is
// set, and bit 0, which would say that it is a group, is not.
func nameGUID(host, name string) verbs.GUID {
	mac := hmac.New(sha256.New, []byte(host))
	mac.Write([]byte(guidKey + "\x00" + name))
	return verbs.GUID(binary.BigEndian.Uint64(mac.Sum(nil))&^(3<<56) | 2<<56)
}

// hostIdentity is the secret of the host from which GUIDs are derived; machine-id(5) asks programs
// not to publish the machine ID itself, and a keyed hash does not reveal it.
var hostIdentity = sync.OnceValue(func() string { return identify(os.ReadFile, os.Hostname) })

// identify returns the machine ID. A host without one, such as most containers, is identified by
// its boot and its name, so that containers of one machine differ: their names do. Where there is
// neither, as on systems other than Linux, the identity is random.
func identify(read func(file string) ([]byte, error), hostname func() (string, error)) string {
	for _, file := range machineIDs {
		// An ID has 32 hexadecimal digits. A file may be empty, or say "uninitialized" during the
		// first boot.
		if id, err := read(file); err == nil && len(strings.TrimSpace(string(id))) == 32 {
			return "machine " + strings.TrimSpace(string(id))
		}
	}
	name, err := hostname()
	if boot, berr := read(bootID); err == nil && berr == nil {
		return "boot " + strings.TrimSpace(string(boot)) + " " + name
	}
	return "random " + rand.Text()
}

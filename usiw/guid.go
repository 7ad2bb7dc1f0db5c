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

// Files that identify the host. systemd and D-Bus use the same ID (machine-id(5)).
var machineIDs = []string{"/etc/machine-id", "/var/lib/dbus/machine-id"}

const bootID = "/proc/sys/kernel/random/boot_id"

// guidKey ties the GUIDs to this package, so that no other program derives the same values from a
// host's identity.
const guidKey = "GUID of the user-space RNIC of github.com/goverbs/goverbs"

// nameGUID returns the GUID of the named NIC on a host. Like a network card's GUID, it is the same
// in every process and after a restart, and it differs between names and between hosts. It is a
// locally administered EUI-64, because no manufacturer assigns it: bit 1 of the first byte is set
// and bit 0, which would mark a group, is clear.
func nameGUID(host, name string) verbs.GUID {
	mac := hmac.New(sha256.New, []byte(host))
	mac.Write([]byte(guidKey + "\x00" + name))
	return verbs.GUID(binary.BigEndian.Uint64(mac.Sum(nil))&^(3<<56) | 2<<56)
}

// hostIdentity is the host secret from which GUIDs are derived. machine-id(5) asks programs not to
// publish the machine ID itself; a keyed hash does not reveal it.
var hostIdentity = sync.OnceValue(func() string { return identify(os.ReadFile, os.Hostname) })

// identify returns the machine ID. A host without one, such as most containers, is identified by
// its boot ID and its name, because the names of containers on one machine differ. Without either,
// as on systems other than Linux, the identity is random.
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

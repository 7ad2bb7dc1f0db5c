// SPDX-License-Identifier: BSD-3-Clause

// Package run starts a program of libibverbs and librdmacm with the user-space RNIC preloaded. The
// preloaded libraries are in the folder preload; docs/run.md describes them.
package run

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/runenv"
	"github.com/goverbs/goverbs/usiw"
)

// Options configure the device that the program uses.
type Options struct {
	Device string      // "" = usiw0
	Addr   netip.Addr  // usiw.Config.Addr
	MTU    int         // usiw.Config.MTU
	CRC    usiw.Policy // usiw.Config.CRC
	Pcap   string      // capture file, "" = none

	KeepReal bool // the program also has the kernel devices
}

// Run turns this process into the program, and returns only if that fails. args[0] is the program's
// name, which is looked up in PATH.
func Run(o Options, args []string) error {
	file, err := find(args[0])
	if err != nil {
		return err
	}
	dir, err := Libraries()
	if err != nil {
		return err
	}
	env, err := o.environ(os.Environ(), filepath.Join(dir, runenv.Shim))
	if err != nil {
		return err
	}
	return become(file, args, env)
}

// Libraries returns the directory of the two libraries: the executable's directory, or lib/goverbs
// beside it.
func Libraries() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", err
	}
	beside := filepath.Dir(self)
	return libraries(beside, filepath.Join(filepath.Dir(beside), "lib", "goverbs"))
}

func libraries(dirs ...string) (string, error) {
	var missing []string
	for _, dir := range dirs {
		lacks := slices.DeleteFunc([]string{runenv.Shim, runenv.RNIC}, func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
		if len(lacks) == 0 {
			return dir, nil
		}
		missing = append(missing, fmt.Sprintf("%s in %s", strings.Join(lacks, " and "), dir))
	}
	return "", fmt.Errorf("%w: no %s (make preload builds them)", fs.ErrNotExist, strings.Join(missing, ", no "))
}

// environ adds the variables that the preloaded libraries read. The PID stays valid, because this
// process becomes the program.
func (o Options) environ(env []string, shim string) ([]string, error) {
	if strings.ContainsAny(shim, " :") {
		return nil, fmt.Errorf("%s: LD_PRELOAD cannot name a file with a space or a colon", shim)
	}
	set := func(name, value string) {
		env = slices.DeleteFunc(env, func(s string) bool { return strings.HasPrefix(s, name+"=") })
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	env = slices.Clone(env)
	preload := []string{shim} // before other libraries, which may have the same functions
	for _, s := range env {
		if old, ok := strings.CutPrefix(s, "LD_PRELOAD="); ok {
			for _, file := range strings.FieldsFunc(old, func(r rune) bool { return r == ':' || r == ' ' }) {
				if file != shim {
					preload = append(preload, file)
				}
			}
		}
	}
	set("LD_PRELOAD", strings.Join(preload, ":"))
	set(runenv.Device, o.Device)
	addr := ""
	if o.Addr.IsValid() {
		addr = o.Addr.String()
	}
	set(runenv.Addr, addr)
	mtu := ""
	if o.MTU != 0 {
		mtu = strconv.Itoa(o.MTU)
	}
	set(runenv.MTU, mtu)
	crc := ""
	if o.CRC != usiw.Default {
		crc = o.CRC.String()
	}
	set(runenv.CRC, crc)
	pcap, err := o.Pcap, error(nil)
	if pcap != "" {
		if pcap, err = filepath.Abs(pcap); err != nil { // the program may change directory first
			return nil, err
		}
	}
	set(runenv.Pcap, pcap)
	keep := ""
	if o.KeepReal {
		keep = "1"
	}
	set(runenv.KeepReal, keep)
	set(runenv.PID, strconv.Itoa(os.Getpid()))
	return env, nil
}

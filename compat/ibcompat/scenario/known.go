// SPDX-License-Identifier: BSD-3-Clause

package scenario

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/verbs"
)

// exception is a known difference: on the devices of a driver, with certain kernels, a program
// observes something else than on other fabrics. docs/semantics.md lists each one and what a
// program can do about it.
type exception struct {
	scenario string
	driver   string // "rxe"
	vendorID uint32 // of the driver's devices
	kernel   string // first version of Linux with the difference, "6.12"
	what     string // what a program observes
	// instead reports whether the event here is the device's known replacement for usual.
	instead func(usual, here Event) bool
}

// vendorRXE is RXE_VENDOR_ID of the kernel's drivers/infiniband/sw/rxe.
const vendorRXE = 0xffffff

var exceptions = []*exception{
	{scenario: "row20/bad-source", driver: "rxe", vendorID: vendorRXE, kernel: "6.12",
		what: "if a request fails because its own source is wrong, those before it that are not confirmed yet are flushed with it, though " +
			"they arrive; on other fabrics they succeed",
		// Which of them are already confirmed is a matter of chance, so there may be no difference.
		instead: func(usual, here Event) bool {
			flushed := Event{End: "active", Kind: "sent", ID: usual.ID, Status: verbs.WCWRFlushErr.String()}
			return usual.End == flushed.End && usual.Kind == flushed.Kind && here == flushed
		}},
}

// text returns the driver, its kernels and the difference.
func (x *exception) text() string {
	return fmt.Sprintf("%s of Linux %s and later: %s", x.driver, x.kernel, x.what)
}

// kernelRelease returns the version of Linux on this host in the format of uname(2), or ""
// elsewhere. It is a variable for tests.
var kernelRelease = func() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(release))
}

// exception returns the exception that applies to this scenario on a fabric, or nil.
func (s *Scenario) exception(f Fabric) (*exception, error) {
	for _, x := range exceptions {
		if x.scenario != s.Name || !atLeast(kernelRelease(), x.kernel) {
			continue
		}
		for _, dev := range []*verbs.Device{f.Active, f.Passive} {
			if drives, err := x.drives(dev); drives || err != nil {
				return x, err
			}
		}
	}
	return nil, nil
}

// drives reports whether a device, or the device it wraps, is a kernel device with that driver.
func (x *exception) drives(dev *verbs.Device) (is bool, err error) {
	if _, kernel := verbs.Ability[verbs.ProviderKernelDevice](dev.Provider()); !kernel {
		return false, nil
	}
	ctx, err := dev.Open()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	attr, err := ctx.QueryDevice()
	return attr.VendorID == x.vendorID, err
}

// atLeast compares two versions. The first may continue after its second number, as in
// 6.12.73-1-amd64.
func atLeast(release, version string) bool {
	major, minor := numbers(release)
	wantMajor, wantMinor := numbers(version)
	return major > wantMajor || major == wantMajor && minor >= wantMinor
}

func numbers(version string) (major, minor int) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	if end := strings.IndexFunc(second, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		second = second[:end]
	}
	major, _ = strconv.Atoi(first)
	minor, _ = strconv.Atoi(second)
	return major, minor
}

// explains reports whether a trace of the device differs from the usual one only in the known way.
func (x *exception) explains(usual, here Trace) bool {
	if len(usual) != len(here) {
		return false
	}
	for i, e := range usual {
		if e != here[i] && !x.instead(e, here[i]) {
			return false
		}
	}
	return true
}

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

// exception is a difference that is known: on devices of a driver, with some kernels, a program
// sees something else in a scenario than on other fabrics. docs/semantics.md has each of them, and
// what a program can do.
type exception struct {
	scenario string
	driver   string // "rxe"
	vendorID uint32 // of its devices
	kernel   string // the first version of Linux that has it, "6.12"
	what     string // what a program sees there
	// instead reports whether here is what the device has in place of usual.
	instead func(usual, here Event) bool
}

// vendorRXE is RXE_VENDOR_ID of the kernel's drivers/infiniband/sw/rxe.
const vendorRXE = 0xffffff

var exceptions = []*exception{
	{scenario: "row20/bad-source", driver: "rxe", vendorID: vendorRXE, kernel: "6.12",
		what: "if a request fails because its own source is wrong, those before it that are not confirmed yet are flushed with it, though " +
			"they arrive; on other fabrics they succeed",
		// Which of them are confirmed already is a matter of chance, so all may be as usual.
		instead: func(usual, here Event) bool {
			flushed := Event{End: "active", Kind: "sent", ID: usual.ID, Status: verbs.WCWRFlushErr.String()}
			return usual.End == flushed.End && usual.Kind == flushed.Kind && here == flushed
		}},
}

// text names the driver, its kernels and the difference.
func (x *exception) text() string {
	return fmt.Sprintf("%s of Linux %s and later: %s", x.driver, x.kernel, x.what)
}

// kernelRelease is the version of Linux on this host, as uname(2) has it; "" elsewhere. A variable
// for tests.
var kernelRelease = func() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(release))
}

// exception is the one for this scenario on a fabric, nil if there is none.
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

// drives reports whether a device, or the one that it wraps, is one of the kernel's with that
// driver.
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

// atLeast compares two versions, of which the first may have more behind its first two numbers, as
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

// explains reports whether a trace of the device differs from the usual one only as is known.
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

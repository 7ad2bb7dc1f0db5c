// SPDX-License-Identifier: BSD-3-Clause

package rdmatest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	// RequireVariable names the environment variable that lists, separated by commas, the kernel
	// devices without which a test run is worthless.
	RequireVariable = "GOVERBS_TEST_REQUIRE"
	// sysfsDevices is where Linux lists its RDMA devices (rdma-core, ibv_get_device_list).
	sysfsDevices = "/sys/class/infiniband"
)

// errNoDevice is the reason to skip a test.
var errNoDevice = errors.New("no such device here, and " + RequireVariable + " does not ask for it")

// KernelDevice is called by a test that needs a kernel device. If the device is absent, the test
// fails where GOVERBS_TEST_REQUIRE lists it, as in the guest of testbed/, and is skipped elsewhere.
func KernelDevice(t testing.TB, name string) {
	t.Helper()
	switch err := kernelDevice(sysfsDevices, os.Getenv(RequireVariable), name); {
	case errors.Is(err, errNoDevice):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// kernelDevice returns nil if the directory has the device, an error wrapping errNoDevice if it is
// absent and may be, and another error otherwise.
func kernelDevice(dir, required, name string) error {
	_, err := os.Stat(filepath.Join(dir, name))
	switch {
	case err == nil:
		return nil
	case slices.Contains(strings.Split(required, ","), name):
		return fmt.Errorf("%s=%s: %w", RequireVariable, required, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", name, errNoDevice)
	default:
		return err
	}
}

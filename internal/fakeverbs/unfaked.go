// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

import (
	"debug/elf"
	"strings"
)

// Unfaked returns the functions of libibverbs and librdmacm that the running program takes from the libraries, because
// this package does not define them.
func Unfaked() ([]string, error) { return unfaked("/proc/self/exe") }

func unfaked(program string) ([]string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, s := range symbols {
		for _, prefix := range []string{"ibv_", "_ibv_", "rdma_"} {
			if strings.HasPrefix(s.Name, prefix) {
				all = append(all, s.Name)
			}
		}
	}
	return all, nil
}

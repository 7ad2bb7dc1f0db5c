// SPDX-License-Identifier: BSD-3-Clause

package mapmem

import "golang.org/x/sys/unix"

// hugePage is the size that MAP_HUGETLB maps by default on the common architectures.
const hugePage = 2 << 20

// mapHuge maps huge pages from the system's pool. If the pool is exhausted, it maps ordinary pages
// that the kernel may merge into huge ones.
func mapHuge(n, prot, flags int) ([]byte, error) {
	n = (n + hugePage - 1) / hugePage * hugePage
	if mem, err := unix.Mmap(-1, 0, n, prot, flags|unix.MAP_HUGETLB); err == nil {
		return mem, nil
	}
	mem, err := unix.Mmap(-1, 0, n, prot, flags)
	if err == nil {
		_ = unix.Madvise(mem, unix.MADV_HUGEPAGE)
	}
	return mem, err
}

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package cm

import (
	"testing"

	"github.com/goverbs/goverbs/internal/abitest"
)

// TestABI: the declarations in rdma_abi.h match the headers of librdmacm.
func TestABI(t *testing.T) {
	abitest.ABI{
		Header:    "rdma_abi.h",
		Functions: "RDMA_FUNCTIONS(SAME)",
		Partial:   []string{"struct ibv_device", "struct ibv_context", "struct rdma_cm_id"},
		Invented:  []string{"words"},
		Sources:   []string{"cgo_cm.c"},
	}.Check(t)
}

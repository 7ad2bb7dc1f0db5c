// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

import (
	"testing"

	"github.com/goverbs/goverbs/internal/abitest"
)

// TestABI: what ibv_abi.h says of libibverbs is what the library's headers say.
func TestABI(t *testing.T) {
	abitest.ABI{
		Header:    "ibv_abi.h",
		Functions: "IBV_FUNCTIONS(SAME, SAME)",
		Partial: []string{"struct ibv_device", "struct ibv_device_attr_ex", "struct ibv_qp_init_attr_ex",
			"struct ibv_pd", "struct ibv_comp_channel", "struct ibv_cq",
			"struct ibv_srq", "struct ibv_qp_ex"},
		Invented: []string{"words", "unused1", "unused2", "unused3", "unused4"},
		Sources:  []string{"cgo_verbs.c", "cgo_verbs_post.c"},
	}.Check(t)
}

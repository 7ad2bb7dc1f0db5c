// SPDX-License-Identifier: BSD-3-Clause

package ext_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// Three counters of 32, 16 and 16 bits share one word of the peer's memory. Each wraps around
// without a carry into the next.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{TCP: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	fields, err := ext.FieldMask(32, 16, 16)
	if err != nil {
		log.Fatal(err)
	}
	binary.NativeEndian.PutUint64(p.B.MR.Bytes(), 5<<48|0xffff<<32|7)

	sink, err := p.A.MR.SGE(0, 8)
	if err != nil {
		log.Fatal(err)
	}
	wr := ext.MaskedFetchAddWR(p.B.MR.Remote(), 1<<48|1<<32|1, fields, sink)
	if _, err := p.A.Do(ctx, wr); err != nil {
		log.Fatal(err)
	}
	word := binary.NativeEndian.Uint64(p.B.MR.Bytes())
	fmt.Println(uint32(word), uint16(word>>32), word>>48)
	// Output: 8 0 6
}

// A Write followed by 64-bit Immediate Data, which notifies the peer.
func ExampleWriteImm64WRs() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{TCP: "127.0.0.1:0", Before: func(p *usiwtest.Pair) error {
		_, err := p.B.QP.PostRecv([]verbs.RecvWR{{}}) // consumed by the immediate
		return err
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	src, err := p.A.MR.SGE(0, copy(p.A.MR.Bytes(), "data"))
	if err != nil {
		log.Fatal(err)
	}
	wrs := ext.WriteImm64WRs(p.B.MR.Remote(), 1<<40, src)
	if _, err := p.A.Do(ctx, wrs[:]...); err != nil {
		log.Fatal(err)
	}
	wc, err := usiwtest.Next(ctx, p.B.RecvCQ)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%v %d %d %s\n", wc.Opcode, wc.ByteLen, wc.Imm64, p.B.MR.Bytes()[:wc.ByteLen])
	// Output: RECV_RDMA_WITH_IMM 4 1099511627776 data
}

// The RFC 7306 operations that a device supports.
func ExampleCapabilities() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	p, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for _, c := range ext.Capabilities(p.A.Context) {
		if ext.Operations.Has(c.Op) {
			fmt.Println(c)
		}
	}
	// Output:
	// write-imm: native
	// fetch-add: native
	// cmp-swap: native
	// masked-fetch-add: native
	// masked-cmp-swap: native
	// imm64: native
}

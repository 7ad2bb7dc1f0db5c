// SPDX-License-Identifier: BSD-3-Clause

package capture_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
	"github.com/goverbs/goverbs/usiw/usiwtest"
	"github.com/goverbs/goverbs/verbs"
)

// Record a connection in a file, here in memory, that Wireshark can read.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var file bytes.Buffer
	w, err := capture.New(&file, capture.Config{})
	if err != nil {
		log.Fatal(err)
	}
	cfg := usiw.Config{Tap: w}
	p, err := usiwtest.NewPair(ctx, usiwtest.PairConfig{TCP: "127.0.0.1:0", A: cfg, B: cfg})
	if err != nil {
		log.Fatal(err)
	}
	src, err := p.A.MR.SGE(0, copy(p.A.MR.Bytes(), "hello"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.A.Do(ctx, verbs.Write(p.B.MR.Remote(), src)); err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(p.Close(), w.Close()); err != nil {
		log.Fatal(err)
	}

	r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		log.Fatal(err)
	}
	for {
		packet, _, err := r.ReadPacketData()
		if err != nil {
			break
		}
		if bytes.Contains(packet, []byte("hello")) {
			fmt.Println("the Write is in the file")
		}
	}
	// Output: the Write is in the file
}

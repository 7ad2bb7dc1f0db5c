// SPDX-License-Identifier: BSD-3-Clause

package dat_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/compat/dat"
	"github.com/goverbs/goverbs/usiw"
)

// One EP writes into another's memory and notifies it with an immediate. Both are in this process.
func Example() {
	nic, err := usiw.Register(usiw.Config{Name: "example0"})
	check(err)
	defer nic.Close()
	ia, err := dat.Open("ib:example0", dat.Config{})
	check(err)
	defer ia.Close(dat.CloseAbrupt)
	pz, err := ia.CreatePZ()
	check(err)
	evd, err := ia.CreateEVD(16, dat.EVDCR|dat.EVDConnection|dat.EVDDTO)
	check(err)
	lmr, err := pz.AllocLMR(4096, dat.MemPrivAll)
	check(err)
	server, err := ia.CreateEP(pz, evd, evd, evd, dat.EPAttr{})
	check(err)
	client, err := ia.CreateEP(pz, evd, evd, evd, dat.EPAttr{})
	check(err)
	check(server.PostRecvImmed(nil, 1, dat.CompletionDefault))

	psp, err := ia.CreatePSP(0, evd, dat.PSPConsumer)
	check(err)
	at, err := psp.Query()
	check(err)
	check(client.Connect(netip.MustParseAddr("127.0.0.1"), at.ConnQual, time.Minute, nil))
	for established := 0; established < 2; {
		ev, _, err := evd.Wait(context.Background(), time.Minute, 1)
		check(err)
		switch ev.Number {
		case dat.ConnectionRequestEvent:
			check(ev.CR.CR.Accept(server, nil))
		case dat.ConnectionEstablished:
			established++
		}
	}

	segment, err := lmr.Segment(0, copy(lmr.Bytes(), "hello"))
	check(err)
	to, err := lmr.Remote(2048, 5)
	check(err)
	check(client.PostWriteImmed([]dat.LMRTriplet{segment}, 2, to, 7306, dat.DTOImmedFlag, dat.CompletionSuppress))
	ev, _, err := evd.Wait(context.Background(), time.Minute, 1)
	check(err)
	fmt.Printf("%v: %d bytes, immediate %d: %s\n", ev.DTO.Operation, ev.DTO.TransferredLength, ev.DTO.ImmedData,
		lmr.Bytes()[2048:2053])
	// Output: RECEIVE_RDMA_IMMED: 5 bytes, immediate 7306: hello
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

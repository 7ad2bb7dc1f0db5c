// SPDX-License-Identifier: BSD-3-Clause

// Command writeimm connects to itself and sends a text by RDMA Write with immediate: it appears in the peer's memory, and the
// peer gets a completion with the immediate.
//
//	writeimm [-device NAME] [-listen ADDR]
//
// It uses the user-space RNIC, or another device with an address of that device.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

func main() {
	log.SetFlags(0)
	device := flag.String("device", "usiw0", "use the device `NAME`")
	listen := flag.String("listen", "127.0.0.1:0", "listen on `ADDR`, which the device must reach")
	flag.Parse()
	if err := run(context.Background(), *device, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, device, listen string) error {
	nic, err := siw.Register(siw.Config{}) // adds usiw0 to verbs.Devices()
	if err != nil {
		return err
	}
	defer nic.Close()
	dev, err := verbs.DeviceByName(device)
	if err != nil {
		return err
	}
	cfg := cm.Config{Device: dev}

	ln, err := cm.Listen(ctx, listen, cfg)
	if err != nil {
		return err
	}
	defer ln.Close()
	received := make(chan error, 1)
	go func() { received <- receive(ctx, ln) }()

	if err := write(ctx, ln.Addr().String(), cfg, "hello, memory"); err != nil {
		return err
	}
	return <-received
}

// receive accepts a connection, sends the peer the address and key of its memory, and prints what arrives there.
func receive(ctx context.Context, ln *cm.Listener) error {
	req, err := ln.Accept(ctx)
	if err != nil {
		return err
	}
	mr, cq, qp, err := resources(req.Context(), verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	if err != nil {
		return err
	}
	if err := req.BindQP(qp); err != nil {
		return err
	}
	if _, err := qp.PostRecv([]verbs.RecvWR{{}}); err != nil { // the immediate consumes it
		return err
	}
	where := binary.BigEndian.AppendUint64(nil, mr.Addr())
	where = binary.BigEndian.AppendUint32(where, mr.RKey())
	id, err := req.Accept(ctx, qp, cm.ConnParam{PrivateData: where})
	if err != nil {
		return err
	}
	defer id.Close()

	wcs := make([]verbs.WC, 1)
	if _, err := cq.Wait(ctx, wcs); err != nil {
		return err
	}
	if err := wcs[0].Err(); err != nil {
		return err
	}
	fmt.Printf("%v: %d bytes, immediate %d: %q\n", wcs[0].Opcode, wcs[0].ByteLen, wcs[0].Imm, mr.Bytes()[:wcs[0].ByteLen])
	return nil
}

// write connects and writes text to the memory of the peer.
func write(ctx context.Context, address string, cfg cm.Config, text string) error {
	id, err := cm.Resolve(ctx, address, cfg)
	if err != nil {
		return err
	}
	defer id.Close()
	mr, cq, qp, err := resources(id.Context(), 0)
	if err != nil {
		return err
	}
	if err := id.Connect(ctx, qp, cm.ConnParam{}); err != nil {
		return err
	}
	where := id.PrivateData()
	if len(where) < 12 { // it can be longer: InfiniBand pads private data with zeros
		return fmt.Errorf("private data of %d bytes", len(where))
	}
	sge, err := mr.SGE(0, copy(mr.Bytes(), text))
	if err != nil {
		return err
	}
	_, err = qp.PostSend([]verbs.SendWR{{
		Opcode:     verbs.WRRDMAWriteWithImm,
		Flags:      verbs.SendSignaled,
		SGL:        []verbs.SGE{sge},
		RemoteAddr: binary.BigEndian.Uint64(where),
		RKey:       binary.BigEndian.Uint32(where[8:]),
		Imm:        7306,
	}})
	if err != nil {
		return err
	}
	wcs := make([]verbs.WC, 1)
	if _, err := cq.Wait(ctx, wcs); err != nil {
		return err
	}
	return wcs[0].Err()
}

// resources makes a region of 4,096 bytes, a CQ and a QP. They live as long as the process.
func resources(ctx *verbs.Context, access verbs.AccessFlags) (*verbs.MR, *verbs.CQ, *verbs.QP, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, nil, nil, err
	}
	mr, err := pd.AllocMR(4096, access)
	if err != nil {
		return nil, nil, nil, err
	}
	cq, err := ctx.CreateCQ(verbs.CQConfig{})
	if err != nil {
		return nil, nil, nil, err
	}
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	return mr, cq, qp, err
}

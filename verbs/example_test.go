// SPDX-License-Identifier: BSD-3-Clause

package verbs_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// The objects of a program, created and closed in order.
func Example() {
	nic, err := usiw.Register(usiw.Config{}) // adds usiw0 to verbs.Devices()
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	dev, err := verbs.DeviceByName("usiw0")
	if err != nil {
		log.Fatal(err)
	}
	vctx, err := dev.Open()
	if err != nil {
		log.Fatal(err)
	}
	pd, err := vctx.AllocPD()
	if err != nil {
		log.Fatal(err)
	}
	mr, err := pd.AllocMR(4096, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	if err != nil {
		log.Fatal(err)
	}
	cq, err := vctx.CreateCQ(verbs.CQConfig{})
	if err != nil {
		log.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(mr.Len(), "bytes,", qp.State(), vctx.Supports(verbs.OpFetchAdd))
	fmt.Println("too early:", errors.Is(vctx.Close(), verbs.ErrBusy))
	fmt.Println(errors.Join(qp.Close(), cq.Close(), mr.Close(), pd.Close(), vctx.Close()))
	// Output:
	// 4096 bytes, RESET true
	// too early: true
	// <nil>
}

// connected returns the two ends of a connection from a user-space RNIC to itself. Each end has
// 4,096 bytes that the other may access.
func connected(ctx context.Context) (a, b *cm.Endpoint, stop func()) {
	nic, err := usiw.New(usiw.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: nic.Device()})
	if err != nil {
		log.Fatal(err)
	}
	cfg := cm.EndpointConfig{Memory: 4096,
		Access: verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic}
	var g errgroup.Group
	g.Go(func() (err error) {
		b, err = ln.AcceptEndpoint(ctx, cfg)
		return err
	})
	if a, err = cm.Dial(ctx, ln.Addr().String(), cm.Config{Device: nic.Device()}, cfg); err != nil {
		log.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		log.Fatal(err)
	}
	return a, b, func() { errors.Join(a.Close(), b.Close(), ln.Close(), nic.Close()) }
}

// readRecord reads n bytes at offset 8 of a record in the peer's memory, without involving the
// peer's program. The record's owner makes the version at offset 0 odd before it changes the bytes,
// and even again afterwards. A Read is not atomic, so the version is read both before and after the
// bytes. Each Read waits for the previous one (SendFence).
func readRecord(ctx context.Context, ep *cm.Endpoint, record verbs.Remote, n int) ([]byte, error) {
	mr := ep.MR()
	version, err := record.Slice(0, 8)
	if err != nil {
		return nil, err
	}
	value, err := record.Slice(8, n)
	if err != nil {
		return nil, err
	}
	first := verbs.Read(version, verbs.SGE{Addr: mr.Addr(), Length: 8, LKey: mr.LKey()})
	bytes := verbs.Read(value, verbs.SGE{Addr: mr.Addr() + 16, Length: uint32(n), LKey: mr.LKey()})
	again := verbs.Read(version, verbs.SGE{Addr: mr.Addr() + 8, Length: 8, LKey: mr.LKey()})
	bytes.Flags |= verbs.SendFence
	again.Flags |= verbs.SendFence
	for {
		if _, err := ep.Do(ctx, first, bytes, again); err != nil {
			return nil, err
		}
		before, after := binary.NativeEndian.Uint64(mr.Bytes()), binary.NativeEndian.Uint64(mr.Bytes()[8:])
		if before == after && before%2 == 0 {
			return append([]byte(nil), mr.Bytes()[16:16+n]...), nil
		}
	}
}

// A cache in a server's memory, which clients access by one-sided Reads.
func ExampleRead() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, server, stop := connected(ctx)
	defer stop()
	copy(server.MR().Bytes()[8:], "the value")

	// a client receives the Remote as private data or in a message
	value, err := readRecord(ctx, client, server.MR().Remote(), 9)
	fmt.Printf("%q %v\n", value, err)
	// Output: "the value" <nil>
}

// A Write to the peer's memory, followed by a message that announces it. Requests posted later
// arrive later.
func ExampleWrite() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, server, stop := connected(ctx)
	defer stop()

	sge, err := client.MR().SGE(0, copy(client.MR().Bytes(), "written"))
	if err != nil {
		log.Fatal(err)
	}
	to, err := server.MR().Remote().Slice(1000, 7)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Do(ctx, verbs.Write(to, sge), verbs.Send()); err != nil {
		log.Fatal(err)
	}
	if _, err := server.Recv(ctx, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", server.MR().Bytes()[1000:1007])
	// Output: written
}

// A counter and a lock in the peer's memory.
func ExampleFetchAdd() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, server, stop := connected(ctx)
	defer stop()
	counter, err := server.MR().Remote().Slice(0, 8)
	if err != nil {
		log.Fatal(err)
	}
	lock, err := server.MR().Remote().Slice(8, 8)
	if err != nil {
		log.Fatal(err)
	}
	sge, err := client.MR().SGE(0, 8) // receives the original value
	if err != nil {
		log.Fatal(err)
	}
	old := func() uint64 { return binary.NativeEndian.Uint64(client.MR().Bytes()) }

	const me = 1
	for {
		if _, err := client.Do(ctx, verbs.CmpSwap(lock, 0, me, sge)); err != nil {
			log.Fatal(err)
		}
		if old() == 0 {
			break // lock acquired
		}
	}
	for range 3 {
		if _, err := client.Do(ctx, verbs.FetchAdd(counter, 10, sge)); err != nil {
			log.Fatal(err)
		}
		fmt.Println(old())
	}
	if _, err := client.Do(ctx, verbs.CmpSwap(lock, me, 0, sge)); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 0
	// 10
	// 20
}

// One CQ for many requests, each with its own function.
func ExampleDispatcher() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, server, stop := connected(ctx)
	defer stop()
	copy(server.MR().Bytes(), "abc")

	d := client.Dispatcher() // serves the endpoint's CQ; for other CQs use verbs.NewDispatcher
	done := make(chan struct{}, 3)
	for i := range 3 {
		sge, err := client.MR().SGE(i, 1)
		if err != nil {
			log.Fatal(err)
		}
		from, err := server.MR().Remote().Slice(i, 1)
		if err != nil {
			log.Fatal(err)
		}
		_, err = d.PostSend(client.QP(), []verbs.SendWR{verbs.Read(from, sge)}, func(wc *verbs.WC) {
			fmt.Printf("%v %c\n", wc.Status, client.MR().Bytes()[i])
			done <- struct{}{}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		if err := d.Wait(ctx, done); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// success a
	// success b
	// success c
}

// A request that the peer's memory does not allow fails and ends the connection. Both sides learn
// the reason.
func ExampleQP_Cause() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, server, stop := connected(ctx)
	defer stop()
	sge, err := client.MR().SGE(0, 8)
	if err != nil {
		log.Fatal(err)
	}
	from := server.MR().Remote()
	from.Addr += from.Length // past the end
	wc, err := client.Do(ctx, verbs.Read(from, sge))
	fmt.Println(errors.Is(err, verbs.WCRemAccessErr))

	var access *verbs.AccessError
	if errors.As(client.QP().Cause(&wc), &access) {
		fmt.Println(access.Key == from.RKey, access.Addr == from.Addr, access.Length)
	}
	<-server.ID().Done()
	var term *verbs.TerminateError
	if errors.As(server.QP().Err(), &term) {
		fmt.Println(term.Text)
	}
	// Output:
	// true
	// true true 8
	// RDMAP remote protection error: base or bounds violation
}

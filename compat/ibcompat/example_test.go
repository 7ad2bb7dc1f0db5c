// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// A program whose user selects the device by name. The inner device, the user-space RNIC without
// RFC 7306, supports neither masked atomics nor Sends with immediate. The program does not need to
// know: it counts in the two halves of a word on the server, and reports completion by a Send with
// immediate.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	dev, err := verbs.DeviceByName("ib:usiw0-plain")
	if err != nil {
		log.Fatal(err)
	}
	ln, err := cm.Listen(ctx, "127.0.0.1:0", cm.Config{Device: dev})
	if err != nil {
		log.Fatal(err)
	}
	defer ln.Close()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, ln) }()
	if err := errors.Join(count(ctx, ln.Addr().String(), dev), <-served); err != nil {
		log.Fatal(err)
	}
	// Output:
	// emulated: usiw0-plain has no masked-fetch-add, for which there are messages of the engine
	// the immediate 7306, and the halves 3 and 4
}

// serve offers a word, and prints it when the client reports that it is done.
func serve(ctx context.Context, ln *cm.Listener) error {
	ep, err := ln.AcceptEndpoint(ctx, cm.EndpointConfig{Memory: 8, Access: verbs.AccessRemoteAtomic, Offer: true})
	if err != nil {
		return err
	}
	defer ep.Close()
	wc, err := ep.Recv(ctx, nil)
	if err != nil {
		return err
	}
	word, err := ep.MR().Word(0)
	if err != nil {
		return err
	}
	v := word.Load()
	fmt.Printf("the immediate %d, and the halves %d and %d\n", wc.Imm, v>>32, uint32(v))
	if _, err := ep.Recv(ctx, nil); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// count adds 3 to the upper half of the word, and four times 1 to the lower half, which never
// carries into the upper.
func count(ctx context.Context, address string, dev *verbs.Device) error {
	ep, err := cm.Dial(ctx, address, cm.Config{Device: dev}, cm.EndpointConfig{Memory: 8})
	if err != nil {
		return err
	}
	defer ep.Close()
	s, why := ibcompat.Support(ep.QP(), verbs.OpMaskedFetchAdd)
	fmt.Printf("%v: %s\n", s, why)
	word, err := verbs.ParseRemote(ep.PrivateData())
	if err != nil {
		return err
	}
	sink, err := ep.MR().SGE(0, 8)
	if err != nil {
		return err
	}
	halves, err := ext.FieldMask(32, 32)
	if err != nil {
		return err
	}
	for _, add := range []uint64{3 << 32, 1, 1, 1, 1} {
		if _, err := ep.Do(ctx, ext.MaskedFetchAddWR(word, add, halves, sink)); err != nil {
			return err
		}
	}
	if _, err := ep.Do(ctx, verbs.SendImm(7306)); err != nil {
		return err
	}
	return ep.Shutdown(ctx)
}

// The capabilities of a device, plain and wrapped.
func ExampleWrap() {
	nic, err := usiw.New(usiw.Config{Name: "nic0"})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	wrapped, err := ibcompat.Wrap(nic.Device(), ibcompat.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, dev := range []*verbs.Device{nic.Device(), wrapped} {
		ctx, err := dev.Open()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s, %v: Send with immediate %v, masked FetchAdd %v\n", dev.Name(), dev.Info().Transport,
			ext.SupportOf(ctx, verbs.OpSendImm), ext.SupportOf(ctx, verbs.OpMaskedFetchAdd))
		if err := ctx.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// nic0, iWARP: Send with immediate none, masked FetchAdd native
	// ib:nic0, InfiniBand: Send with immediate emulated, masked FetchAdd native
}

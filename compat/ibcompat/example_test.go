// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"fmt"
	"log"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// A device is wrapped, and the result is used in its place. The user-space RNIC has no Send with immediate; what is made of it has.
func ExampleWrap() {
	nic, err := siw.New(siw.Config{Name: "nic0"})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	dev, err := ibcompat.Wrap(nic.Device(), ibcompat.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, err := dev.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer ctx.Close()
	fmt.Println(dev.Name(), dev.Info().Transport, ctx.Supports(verbs.OpSendImm))
	// Output: ib:nic0 InfiniBand true
}

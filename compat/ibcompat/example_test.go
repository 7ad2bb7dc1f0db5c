// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/siw"
)

// A device is wrapped, and the result is used in its place. The user-space RNIC is not of InfiniBand or RoCE, and is refused.
func ExampleWrap() {
	nic, err := siw.New(siw.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	dev, err := ibcompat.Wrap(nic.Device(), ibcompat.Config{})
	var transport *ibcompat.TransportError
	fmt.Println(dev == nil, errors.As(err, &transport))
	// Output: true true
}

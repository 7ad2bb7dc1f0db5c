// SPDX-License-Identifier: BSD-3-Clause

package scenario_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/scenario"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/usiw"
)

// A program observes the same immediates on an RNIC with RFC 7306 and on one without.
func Example() {
	var fabrics []scenario.Fabric
	for name, cfg := range map[string]usiw.Config{"with": {},
		"without": {Without: ext.Operations}} {
		nic, err := usiw.New(cfg)
		if err != nil {
			log.Fatal(err)
		}
		defer nic.Close()
		dev, err := ibcompat.Wrap(nic.Device(), ibcompat.Config{})
		if err != nil {
			log.Fatal(err)
		}
		fabrics = append(fabrics, scenario.Fabric{Name: name, Active: dev, Passive: dev, Listen: "127.0.0.1:0"})
	}
	var immediates []*scenario.Scenario
	for _, s := range scenario.All() {
		if strings.HasPrefix(s.Name, "row05/") {
			immediates = append(immediates, s)
		}
	}
	_, err := scenario.Compare(context.Background(), fabrics, immediates, func(r scenario.Result) {
		fmt.Println(r.Name, r.TracesEqual)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// row05/send-imm true
	// row05/send-imm-too-long true
}

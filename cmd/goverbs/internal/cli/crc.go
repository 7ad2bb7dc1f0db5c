// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/siw"
)

// crcFlag is the name of the option that says when the user-space RNIC asks for CRCs. noCRCFlag, which is older, is --crc off.
const (
	crcFlag   = "crc"
	noCRCFlag = "no-crc"
)

// addCRCFlags adds both.
func addCRCFlags(cmd *cobra.Command) {
	policy := crcPolicy(siw.Auto)
	cmd.Flags().Var(&policy, crcFlag, "have the user-space RNIC ask for CRCs `WHEN`: on, off, or auto: not of Linux's siw")
	cmd.Flags().Bool(noCRCFlag, false, "")
	_ = cmd.Flags().MarkHidden(noCRCFlag)
	complete(cmd, crcFlag, "auto", "on", "off")
}

// chosenCRC returns the policy of those options, the default for a command without them.
func chosenCRC(cmd *cobra.Command) (siw.Policy, error) {
	crc, no := cmd.Flag(crcFlag), cmd.Flag(noCRCFlag)
	switch {
	case crc == nil:
		return siw.Default, nil
	case crc.Changed && no.Changed:
		return 0, usage(cmd, "--%s %v and --%s: one says it all", crcFlag, crc.Value, noCRCFlag)
	case no.Value.String() == "true":
		return siw.Off, nil
	}
	return siw.Policy(*crc.Value.(*crcPolicy)), nil
}

// crcPolicy is the value of --crc.
type crcPolicy siw.Policy

// String implements pflag.Value.
func (p *crcPolicy) String() string { return siw.Policy(*p).String() }

// Type implements pflag.Value.
func (p *crcPolicy) Type() string { return "policy" }

// Set implements pflag.Value.
func (p *crcPolicy) Set(s string) error {
	for _, known := range []siw.Policy{siw.Auto, siw.On, siw.Off} {
		if s == known.String() {
			*p = crcPolicy(known)
			return nil
		}
	}
	return errors.New("not auto, on or off")
}

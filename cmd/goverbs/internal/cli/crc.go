// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/usiw"
)

// crcFlag is the option that sets when the user-space RNIC requests CRCs. noCRCFlag is its older
// form, equivalent to --crc off.
const (
	crcFlag   = "crc"
	noCRCFlag = "no-crc"
)

// addCRCFlags adds both.
func addCRCFlags(cmd *cobra.Command) {
	policy := crcPolicy(usiw.Auto)
	cmd.Flags().Var(&policy, crcFlag,
		"have the user-space RNIC ask for CRCs `WHEN`: on, off, or auto: not of Linux's siw")
	cmd.Flags().Bool(noCRCFlag, false, "")
	_ = cmd.Flags().MarkHidden(noCRCFlag)
	complete(cmd, crcFlag, "auto", "on", "off")
}

// chosenCRC returns the policy that the options set, or the default for a command without them.
func chosenCRC(cmd *cobra.Command) (usiw.Policy, error) {
	crc, no := cmd.Flag(crcFlag), cmd.Flag(noCRCFlag)
	switch {
	case crc == nil:
		return usiw.Default, nil
	case crc.Changed && no.Changed:
		return 0, usage(cmd, "--%s %v and --%s: one says it all", crcFlag, crc.Value, noCRCFlag)
	case no.Value.String() == "true":
		return usiw.Off, nil
	}
	return usiw.Policy(*crc.Value.(*crcPolicy)), nil
}

// crcPolicy is the value of --crc.
type crcPolicy usiw.Policy

// String implements pflag.Value.
func (p *crcPolicy) String() string { return usiw.Policy(*p).String() }

// Type implements pflag.Value.
func (p *crcPolicy) Type() string { return "policy" }

// Set implements pflag.Value.
func (p *crcPolicy) Set(s string) error {
	for _, known := range []usiw.Policy{usiw.Auto, usiw.On, usiw.Off} {
		if s == known.String() {
			*p = crcPolicy(known)
			return nil
		}
	}
	return errors.New("not auto, on or off")
}

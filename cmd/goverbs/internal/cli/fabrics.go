// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/fabrics"
	"github.com/goverbs/goverbs/compat/ibcompat/scenario"
	"github.com/goverbs/goverbs/verbs"
)

func newFabrics() *cobra.Command {
	var o fabrics.Options
	cmd := &cobra.Command{
		Use:   "fabrics",
		Short: "Compare what a program sees on ib: devices of all fabrics",
		Long: "Run small programs on the devices of this host, each wrapped in ib:NAME, and compare everything that they see: what\n" +
			"every call returns, every completion, the memory at the end. The columns are the devices, usiw0 and usiw0-plain\n" +
			"among them, each connected to itself; with an iWARP device NAME of the kernel there is also usiw0+NAME, where\n" +
			"usiw0 connects to NAME. A device that cannot be wrapped is left out with a remark.\n\n" +
			"The exit status is 0 only if at least two columns ran, all columns of --require among them, and all agree.\n" +
			"A difference that a driver of the kernel is known to make is printed as known, with the reason, and is no failure.",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringSliceVar(&o.Columns, "columns", nil,
		"run these `COLUMNS` instead of all: devices, or ACTIVE+PASSIVE, separated by commas")
	f.StringSliceVar(&o.Required, "require", nil, "fail if one of these `COLUMNS` cannot be run")
	f.StringSliceVar(&o.Only, "only", nil, "run scenarios whose `NAMES` begin so, for example row04/,row05/")
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "print the traces that differ to stderr")
	f.BoolVar(&o.JSON, "json", false, "print one line of JSON")
	var names []cobra.Completion
	for _, s := range scenario.All() {
		names = append(names, s.Name)
	}
	complete(cmd, "only", names...)
	checkOnly := func(cmd *cobra.Command) error {
		for _, begin := range o.Only {
			if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, begin) }) {
				return usage(cmd, "--only %q: no scenario's name begins so%s (there are: %s)", begin,
					didYouMean(begin, names), strings.Join(names, ", "))
			}
		}
		return nil
	}
	complete(cmd, "columns")
	complete(cmd, "require")
	cmd.RunE = withNIC(func(cmd *cobra.Command, nic *verbs.Device) error {
		for name, list := range map[string]*[]string{"columns": &o.Columns, "require": &o.Required} {
			for i, column := range *list {
				if column == "" || column == devices.Auto || slices.Contains((*list)[:i], column) {
					return usage(cmd, "--%s: %q is no column, or twice there", name, column)
				}
			}
		}
		if err := checkOnly(cmd); err != nil {
			return err
		}
		o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
		return fabrics.Run(cmd.Context(), nic, o)
	})
	return cmd
}

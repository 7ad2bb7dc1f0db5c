// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/version"
)

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "version",
		Short:             "Show the version of the program, of Go and of rdma-core",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	asJSON := cmd.Flags().Bool("json", false, "print one line of JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r := version.New()
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
		}
		return r.Print(cmd.OutOrStdout())
	}
	return cmd
}

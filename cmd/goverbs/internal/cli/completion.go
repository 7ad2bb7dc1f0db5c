// SPDX-License-Identifier: BSD-3-Clause

package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// shells maps each shell to the function that writes its completion script.
var shells = map[string]func(root *cobra.Command, w io.Writer) error{
	"bash": func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
	"zsh":  func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
	"fish": func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
}

func newCompletion() *cobra.Command {
	names := []cobra.Completion{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion {bash | zsh | fish}",
		Short: "Print what makes a shell complete commands, options and devices",
		Long: "Print the script with which a shell completes commands, options and the names of devices:\n\n" +
			"\tsource <(goverbs completion bash)     # needs the package bash-completion\n" +
			"\tsource <(goverbs completion zsh)      # after compinit\n" +
			"\tgoverbs completion fish | source\n\n" +
			"in the file that the shell reads when it starts.",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion,
			cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage(cmd, "no shell was given (there are: bash, zsh, fish)")
			}
			if len(args) > 1 {
				return usage(cmd, "unexpected argument %q", args[1])
			}
			script, ok := shells[args[0]]
			if !ok {
				return usage(cmd, "unknown shell %q%s (there are: bash, zsh, fish)", args[0],
					didYouMean(args[0], names))
			}
			return script(cmd.Root(), cmd.OutOrStdout())
		},
	}
}

// complete sets the completions of an option's value. Without values nothing is completed, not even
// file names, which shells complete by default.
func complete(cmd *cobra.Command, option string, values ...cobra.Completion) {
	err := cmd.RegisterFlagCompletionFunc(option, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // no such option
	}
}

// completeDevices completes an option's value with the names of devices, and with auto if the
// option accepts it.
func completeDevices(cmd *cobra.Command, auto bool) {
	err := cmd.RegisterFlagCompletionFunc(deviceFlag, func(cmd *cobra.Command, _ []string, _ string) (
		names []cobra.Completion, _ cobra.ShellCompDirective) {
		_ = devices.WithNIC(cmd.Context(), usiw.Config{}, func(nic *verbs.Device) error {
			for _, d := range devices.Names(nic) {
				names = append(names, cobra.CompletionWithDesc(d.Name, d.Description))
			}
			return nil
		})
		if auto {
			names = append(names, cobra.CompletionWithDesc(devices.Auto, "chosen by the address"))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // no such option
	}
}

// SPDX-License-Identifier: BSD-3-Clause

// Package cli is the command line of goverbs: commands, options, usage and exit statuses. The
// packages beside it implement the commands and do not depend on it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/demo"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/output"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/shutdown"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/version"
)

// The exit statuses.
const (
	exitDone   = 0 // done and verified
	exitFailed = 1
	exitUsage  = 2
)

// usageError reports an invalid command line. Its text is one line that names the option and the
// value.
type usageError struct {
	command string // as typed, for example "goverbs demo"
	text    string
}

func (e *usageError) Error() string { return e.text }

func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{cmd.CommandPath(), strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")}
}

// Main executes the command line of the process and returns its exit status.
func Main() int {
	ctx, end := shutdown.OnSignal(context.Background(), func(cause error) {
		demo.KillChildren()
		fmt.Fprintf(os.Stderr, "goverbs: %v, and cut off\n", cause)
		os.Exit(status(cause))
	})
	defer end()
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// Run executes one command line and returns the exit status. If stdout cannot be written, the
// command's context is cancelled. Output that could not be written to stdout or stderr is a
// failure, whatever the command returns.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out, notes := output.New(stdout, cancel), output.New(stderr, nil)
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(notes)
	cmd, err := root.ExecuteContextC(ctx)
	if wrong := new(usageError); errors.As(err, &wrong) {
		fmt.Fprintf(notes, "%s: %s (%s --help shows the usage)\n", wrong.command, wrong.text, wrong.command)
		return exitUsage
	}
	for _, lost := range []error{out.Err(), notes.Err()} {
		if lost != nil && !errors.Is(err, lost) {
			err = errors.Join(err, lost)
		}
	}
	if err == nil {
		return exitDone
	}
	fmt.Fprintf(notes, "%s: %v\n", cmd.CommandPath(), err)
	if ended := new(shutdown.Error); errors.As(context.Cause(ctx), &ended) {
		return ended.Status()
	}
	return status(err)
}

// status returns the exit status for an error. Some errors have their own: a signal, and a program
// that cannot be run.
func status(err error) int {
	var own interface{ Status() int }
	if errors.As(err, &own) {
		return own.Status()
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "goverbs",
		Short: "RDMA from Go: devices and demonstrations",
		Args:  unknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return version.New().Print(cmd.OutOrStdout())
			}
			return usage(cmd, "no command was given")
		},
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // replaced by newCompletion
	}
	root.SetFlagErrorFunc(wrongOption)
	root.Flags().BoolVar(&showVersion, "version", false, "show the version, as the command of this name does")
	root.AddCommand(newDevices(), newDemo(), newRPing(), newFabrics(), newRun(), newDemoClient(), newVersion(),
		newCompletion())
	root.SetHelpCommand(newHelp(root))
	return root
}

// newHelp returns the help command, which unlike cobra's own fails for an unknown command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return commandNames(root), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || cmd == nil || len(rest) > 0 {
				return unknownCommand(root, args)
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// unknownCommand rejects arguments of the root command, which are unknown commands.
func unknownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	names := commandNames(root)
	return usage(root, "unknown command %q%s (there are: %s)", args[0], didYouMean(args[0], names),
		strings.Join(names, ", "))
}

// commandNames lists the commands.
func commandNames(root *cobra.Command) (names []string) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// noArguments rejects arguments of a command that takes only options.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage(cmd, "unexpected argument %q", args[0])
}

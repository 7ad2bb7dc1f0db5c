// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError reports a wrong command line. Its text names the option and the value.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// options are the command-line options. A limit or duration of 0 means none.
type options struct {
	listen, dial  endpoint
	device        string
	maxConns      int
	dialTimeout   time.Duration
	idleTimeout   time.Duration
	drainTimeout  time.Duration
	metrics       string // the address of the HTTP server of the metrics, "" for none
	deviceIsGiven bool
}

// execute executes a command line and returns the exit status. Logs go to stderr.
func execute(args []string, stdout, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	cmd := newCommand(log)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(context.Background())
	if wrong := new(usageError); errors.As(err, &wrong) {
		fmt.Fprintf(stderr, "rsockets-bridge: %s (rsockets-bridge --help shows the usage)\n", wrong.text)
		return exitUsage
	}
	if err != nil {
		log.Error("failed", "error", err)
		return exitFailed
	}
	return exitDone
}

func newCommand(log *slog.Logger) *cobra.Command {
	var o options
	var listen, dial string
	cmd := &cobra.Command{
		Use:               "rsockets-bridge --listen URL --dial URL [flags]",
		Short:             "Carry byte streams between sockets and rsockets",
		Long:              "Carry byte streams between sockets and rsockets.\n\nA URL is tcp://HOST:PORT, unix:///PATH or rsocket://HOST:PORT.",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("unexpected argument %q", args[0])
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%v", err) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&listen, "listen", "", "accept connections at `URL`")
	f.StringVar(&dial, "dial", "", "connect each of them to `URL`, the target")
	f.StringVar(&o.device, "device", "usiw0", "use the RDMA device `NAME` for rsockets; auto: by the address")
	f.IntVar(&o.maxConns, "max-conns", 0, "close new connections at once while there are `N` (0: no limit)")
	f.DurationVar(&o.dialTimeout, "dial-timeout", 10*time.Second, "how long connecting to the target may take")
	f.DurationVar(&o.idleTimeout, "idle-timeout", 0,
		"abort a connection on which no byte has moved for this `TIME` (0: never)")
	f.DurationVar(&o.drainTimeout, "drain-timeout", 30*time.Second,
		"after SIGTERM, how long to wait for open connections")
	f.StringVar(&o.metrics, "metrics", "", "serve counts of connections and bytes at http://`ADDR`/debug/vars")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.deviceIsGiven = cmd.Flag("device").Changed
		if err := o.parse(listen, dial); err != nil {
			return err
		}
		return run(cmd.Context(), o, log)
	}
	return cmd
}

// parse sets the endpoints and checks the rest.
func (o *options) parse(listen, dial string) (err error) {
	if o.listen, err = parseEndpoint(listen); err != nil {
		return usage("--listen %q: %v", listen, err)
	}
	if o.dial, err = parseEndpoint(dial); err != nil {
		return usage("--dial %q: %v", dial, err)
	}
	if err := o.dial.complete(); err != nil {
		return usage("--dial %q: %v", dial, err)
	}
	if o.deviceIsGiven && !o.rdma() {
		return usage("--device %q: neither --listen nor --dial is %s://", o.device, schemeRSocket)
	}
	if o.maxConns < 0 {
		return usage("--max-conns %d: below 0", o.maxConns)
	}
	for name, d := range map[string]time.Duration{"idle-timeout": o.idleTimeout, "drain-timeout": o.drainTimeout} {
		if d < 0 {
			return usage("--%s %v: below 0", name, d)
		}
	}
	if o.dialTimeout <= 0 {
		return usage("--dial-timeout %v: not above 0", o.dialTimeout)
	}
	if o.metrics != "" {
		if err := checkHostPort(o.metrics); err != nil {
			return usage("--metrics %q: %v", o.metrics, err)
		}
	}
	return nil
}

// rdma reports whether either endpoint is an rsocket.
func (o *options) rdma() bool {
	return o.listen.scheme == schemeRSocket || o.dial.scheme == schemeRSocket
}

// SPDX-License-Identifier: BSD-3-Clause

// Package fabrics implements the command goverbs fabrics. It runs the scenarios of package
// compat/ibcompat/scenario on the devices of this host, and reports whether a program observes the
// same on all of them.
package fabrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/compat/ibcompat/scenario"
	"github.com/goverbs/goverbs/verbs"
)

// Options are the command's options.
type Options struct {
	JSON     bool
	Verbose  bool     // print traces that differ
	Columns  []string // columns to run besides the required ones (none = all that this host has)
	Required []string // columns without which the command fails
	Only     []string // prefixes of scenario names (none = all)

	Stdout, Stderr io.Writer
}

// report is the output of the command with --json.
type report struct {
	scenario.Report
	Missing []missing `json:"missing"` // columns that did not run
}

type missing struct {
	Column   string `json:"column"`
	Required bool   `json:"required"`
	Error    string `json:"error"`
}

// Run runs the command. nic is the user-space RNIC of the process. The error reports what differed,
// or which required column is missing.
func Run(ctx context.Context, nic *verbs.Device, o Options) error {
	_, err := run(ctx, nic, o)
	return err
}

func run(ctx context.Context, nic *verbs.Device, o Options) (r report, err error) {
	scenarios := chosen(o.Only)
	if len(scenarios) == 0 {
		return r, fmt.Errorf("no scenario's name begins with %s", strings.Join(o.Only, " or "))
	}
	h := new(host)
	defer func() { err = errors.Join(err, h.close()) }()
	var fabrics []scenario.Fabric
	r.Missing = []missing{}
	for _, column := range o.columns(nic) {
		f, err := h.fabric(column)
		if err == nil {
			fabrics = append(fabrics, f)
			continue
		}
		m := missing{column, slices.Contains(o.Required, column), err.Error()}
		r.Missing = append(r.Missing, m)
		fmt.Fprintf(o.Stderr, "without column %s: %s\n", m.Column, m.Error)
	}
	if len(fabrics) == 0 {
		scenarios = nil
	}
	if r.Report, err = scenario.Compare(ctx, fabrics, scenarios,
		func(res scenario.Result) { o.show(res) }); err != nil {
		return r, err
	}
	if o.Verbose {
		o.trace(r.Report)
	}
	if !o.JSON {
		known := r.count(func(s *scenario.Result) bool { return s.OK() && !s.TracesEqual })
		fmt.Fprintf(o.Stdout, "%d scenarios on %s", len(r.Scenarios), strings.Join(r.Columns, ", "))
		if known > 0 {
			fmt.Fprintf(o.Stdout, "; %d differ as is known", known)
		}
		fmt.Fprintln(o.Stdout)
	}
	failed := r.failed()
	if r.OK = failed == nil; o.JSON {
		failed = errors.Join(failed, json.NewEncoder(o.Stdout).Encode(r))
	}
	return r, failed
}

// chosen returns the scenarios whose names have one of the prefixes.
func chosen(only []string) (list []*scenario.Scenario) {
	for _, s := range scenario.All() {
		if len(only) == 0 || slices.ContainsFunc(only,
			func(begin string) bool { return strings.HasPrefix(s.Name, begin) }) {
			list = append(list, s)
		}
	}
	return list
}

// columns returns the names of the columns to run.
func (o *Options) columns(nic *verbs.Device) []string {
	list := slices.Clone(o.Columns)
	if len(list) == 0 {
		list = present(nic)
	}
	for _, column := range o.Required {
		if !slices.Contains(list, column) {
			list = append(list, column)
		}
	}
	return list
}

// present returns all columns of this host: every device, and for each iWARP device of the kernel
// also usiw0 connecting to it.
func present(nic *verbs.Device) []string {
	list := []string{nic.Name(), devices.Plain}
	for _, d := range devices.All(nic) {
		if d == nic {
			continue
		}
		list = append(list, d.Name())
		if d.Info().Transport == verbs.TransportIWARP && !devices.UserSpace(d) {
			list = append(list, nic.Name()+"+"+d.Name())
		}
	}
	return list
}

// host has the devices of the process.
type host struct {
	wrapped []*verbs.Device
}

// close closes the wrapped devices.
func (h *host) close() (err error) {
	for _, d := range h.wrapped {
		err = errors.Join(err, d.CloseShared())
	}
	return err
}

// fabric makes the fabric of a column, which is NAME or ACTIVE+PASSIVE.
func (h *host) fabric(column string) (f scenario.Fabric, err error) {
	f.Name = column
	active, passive, two := strings.Cut(column, "+")
	if f.Active, err = h.wrap(active); err != nil {
		return f, err
	}
	if f.Passive = f.Active; two {
		if f.Passive, err = h.wrap(passive); err != nil {
			return f, err
		}
	}
	at, err := devices.OwnAddress(f.Passive)
	f.Listen = netip.AddrPortFrom(at, 0).String()
	return f, err
}

// wrap returns the device ib:NAME.
func (h *host) wrap(name string) (*verbs.Device, error) {
	dev, err := verbs.DeviceByName(ibcompat.Prefix + name)
	if err == nil {
		h.wrapped = append(h.wrapped, dev)
	}
	return dev, err
}

// show prints the result of a scenario.
func (o *Options) show(r scenario.Result) {
	out := o.Stdout
	if o.JSON {
		out = o.Stderr
	}
	switch {
	case !r.OK():
		fmt.Fprintf(out, "%-32s DIFFERS  %s\n", r.Name, r.Difference)
	case !r.TracesEqual:
		fmt.Fprintf(out, "%-32s known    %s (%s)\n", r.Name, r.Difference, r.Known)
	case r.Known != "":
		fmt.Fprintf(out, "%-32s equal    this time, though a difference is known: %s\n", r.Name, r.Known)
	case !o.JSON:
		fmt.Fprintf(out, "%-32s equal    %.1f s\n", r.Name, r.Seconds)
	}
}

// trace prints the traces that differ.
func (o *Options) trace(r scenario.Report) {
	for _, s := range r.Scenarios {
		for i, t := range s.Traces {
			fmt.Fprintf(o.Stderr, "%s on %s:\n", s.Name, r.Columns[i])
			for k, e := range t {
				fmt.Fprintf(o.Stderr, "%5d  %v\n", k, e)
			}
		}
	}
}

// count returns how many scenarios satisfy such.
func (r *report) count(such func(*scenario.Result) bool) (n int) {
	for i := range r.Scenarios {
		if such(&r.Scenarios[i]) {
			n++
		}
	}
	return n
}

// failed returns why the command fails, or nil if it succeeds.
func (r *report) failed() error {
	var why []string
	for _, m := range r.Missing {
		if m.Required {
			why = append(why, "column "+m.Column+" did not run: "+m.Error)
		}
	}
	if len(r.Columns) < 2 {
		why = append(why, fmt.Sprintf("nothing to compare: %d of 2 columns could be run", len(r.Columns)))
	}
	if differ := r.count(func(s *scenario.Result) bool { return !s.OK() }); differ > 0 {
		why = append(why, fmt.Sprintf("%d of %d scenarios differ", differ, len(r.Scenarios)))
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, "; "))
}

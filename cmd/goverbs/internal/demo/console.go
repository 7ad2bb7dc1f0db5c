// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/output"
)

// console shows people the progress of a demo. On a terminal the current step is a line that is
// redrawn. Elsewhere a line is printed every few seconds during a step and at its end. A quiet
// console prints only notes. All methods may be called concurrently.
type console struct {
	w        io.Writer
	notes    io.Writer // for everything but results
	quiet    bool
	terminal bool
	colour   bool

	mu    sync.Mutex // guards the fields below
	name  string     // current step
	total int
	ops   int
	bytes int64
	start time.Time
	shown time.Time // when a line was last printed
}

// eraseLine erases the current line of a terminal and moves the cursor to its start.
const eraseLine = output.Sequence("\r\x1b[K")

// How often progress is shown.
const (
	terminalInterval = 100 * time.Millisecond
	otherInterval    = 2 * time.Second
)

func newConsole(w, notes io.Writer, quiet bool) *console {
	c := &console{w: w, notes: notes, quiet: quiet}
	c.terminal = !quiet && output.Terminal(w) && os.Getenv("TERM") != "dumb"
	c.colour = c.terminal && os.Getenv("NO_COLOR") == "" && runtime.GOOS != "windows"
	return c
}

// say prints a text.
func (c *console) say(format string, args ...any) {
	if c.quiet {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.w, format, args...)
}

// note prints a text to notes.
func (c *console) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal {
		output.Print(c.w, eraseLine)
	}
	fmt.Fprintf(c.notes, format, args...)
}

// begin starts a step of total operations.
func (c *console) begin(name string, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.name, c.total, c.ops, c.bytes, c.start, c.shown = name, total, 0, 0, now, now
	if c.terminal {
		c.line("")
	}
}

// restart restarts the rate measurement, after a step's preparations.
func (c *console) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = time.Now()
}

// progress adds completed operations and bytes.
func (c *console) progress(ops int, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops += ops
	c.bytes += int64(bytes)
	interval := otherInterval
	if c.terminal {
		interval = terminalInterval
	}
	if time.Since(c.shown) >= interval {
		c.shown = time.Now()
		c.line("of " + thousands(c.total))
	}
}

// end shows the outcome of the step, with a remark if there is one, and returns its operations.
func (c *console) end(ok bool, remark string) (ops int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	outcome := c.outcome("ok", "\x1b[32m")
	if !ok {
		outcome = c.outcome("FAILED", "\x1b[31m")
	}
	if remark != "" {
		outcome = append(outcome, "  ", remark)
	}
	c.line(outcome...)
	if c.terminal {
		fmt.Fprintln(c.w)
	}
	return c.ops
}

// skip shows a step that did not run, and why.
func (c *console) skip(name string, ok bool, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet {
		return
	}
	outcome := c.outcome("skipped", "\x1b[33m")
	if !ok {
		outcome = c.outcome("FAILED", "\x1b[31m")
	}
	output.Print(c.w, append(append([]any{fmt.Sprintf("%-15s %11s %13s %11s  ", name, "", "", "")}, outcome...), "  ",
		why, "\n")...)
}

// outcome colours a word if the output is a terminal.
func (c *console) outcome(word string, colour output.Sequence) []any {
	if c.colour {
		return []any{colour, word, output.Sequence("\x1b[0m")}
	}
	return []any{word}
}

// line formats the step with its rates, followed by text, for output.Print. The caller holds c.mu.
func (c *console) line(text ...any) {
	if c.quiet {
		return
	}
	rate, volume := "", ""
	if s := time.Since(c.start).Seconds(); c.ops > 1 && s > 0 {
		rate = thousands(int(float64(c.ops)/s)) + "/s"
		if c.bytes > 0 {
			volume = thousands(int(float64(c.bytes)/s/1e6)) + " MB/s"
		}
	}
	ops := thousands(c.ops) + " op"
	if c.ops != 1 {
		ops += "s"
	}
	start, end := output.Sequence(""), "\n"
	if c.terminal {
		start, end = eraseLine, ""
	}
	output.Print(c.w, append(
		append([]any{start, fmt.Sprintf("%-15s %11s %13s %11s  ", c.name, ops, rate, volume)}, text...), end)...)
}

// thousands formats n with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

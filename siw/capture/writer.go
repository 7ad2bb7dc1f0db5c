// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"bufio"
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/siw"
	"github.com/goverbs/goverbs/verbs"
)

// Implementation constants.
const (
	// bufferSize is how much is collected before it is written.
	bufferSize = 64 << 10
	// maxText is what the length field of an option in a file can express.
	maxText = 1<<16 - 1
	// maxHeld bounds what is held of FPDUs whose rest has not come, over all connections. When it is more, the parts are
	// written as they are.
	maxHeld = 4 << 20
)

// Config is what a Writer can be told. The zero value has every default.
type Config struct {
	// Name is the name of the interface in the file, such as the device's (default "siw"; at most 65,535 bytes).
	Name string
	// Comment stands in the head of the file (default: that the headers are made up; at most 65,535 bytes).
	Comment string
}

const defaultComment = "Streams of a user-space iWARP RNIC: bytes, addresses and times are real, TCP/IP headers are made up."

// fill checks cfg and puts the defaults in.
func (cfg Config) fill() (Config, error) {
	for _, f := range []struct {
		name, fill string
		v          *string
	}{
		{"Name", "siw", &cfg.Name},
		{"Comment", defaultComment, &cfg.Comment},
	} {
		if *f.v == "" {
			*f.v = f.fill
		}
		if n := len(*f.v); n > maxText {
			err := &verbs.LimitError{Name: "bytes", Limit: maxText, Value: uint64(n)}
			return cfg, fmt.Errorf("capture: Config.%s: %w", f.name, err)
		}
	}
	return cfg, nil
}

// Writer writes a pcapng file. It is a siw.Tap, for one NIC or for several. All methods may be called at the same time.
//
// It remembers every connection that it has seen, with a few hundred bytes, and the beginning of at most one FPDU for
// each direction; of those no more than 4 MiB in all.
type Writer struct {
	mu      sync.Mutex // guards what follows; it is held while the file is written, so that the NICs wait for it
	packets packetWriter
	book    book
	conns   map[link]*connection
	seen    uint32 // connections that have begun
	scratch []byte // for FPDUs that come in one run
	held    int    // bytes in the parts that flow.release can write
	err     error  // the first error of writing: nothing is written after it
	closed  bool
}

var _ siw.Tap = (*Writer)(nil)

// New begins a file on w. It fails if cfg is wrong or the head of the file cannot be written. The Writer calls w.Write for one piece after
// the other, from the goroutines of the NICs, which wait for it; w stays the caller's, who closes it after the Writer.
func New(w io.Writer, cfg Config) (*Writer, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	c := &Writer{conns: make(map[link]*connection), scratch: make([]byte, 0, maxUnit)}
	c.book.init()
	if err := c.packets.init(bufio.NewWriterSize(w, bufferSize), cfg); err != nil {
		return nil, writeError(err)
	}
	return c, nil
}

// writeError says whose error it is.
func writeError(err error) error { return fmt.Errorf("capture: write: %w", err) }

// Packet implements siw.Tap. After Close, or after an error of writing, it does nothing.
func (w *Writer) Packet(p *siw.Packet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.err != nil || size(p.Data) == 0 {
		return
	}
	local, remote := w.book.pair(p.Local, p.Remote)
	c := w.connection(local, remote, p)
	if i, ok := c.sees(local, p.Out); ok {
		w.add(c, i, p)
	}
}

// connection returns the connection that p belongs to, a new one if p opens it.
func (w *Writer) connection(local, remote endpoint, p *siw.Packet) *connection {
	l := linkOf(local, remote)
	c := w.conns[l]
	if c != nil && !c.reopens(local, p) {
		return c
	}
	if c != nil {
		w.release(c, true)
	}
	w.seen++
	if p.Out {
		c = newConnection(local, remote, w.seen)
	} else {
		c = newConnection(remote, local, w.seen)
	}
	w.conns[l] = c
	c.open(w, p.Time)
	return c
}

// write writes one packet and keeps the error.
func (w *Writer) write(p packet) {
	if w.err != nil {
		return
	}
	if err := w.packets.write(&p); err != nil {
		w.err = writeError(err)
	}
}

// flush writes what is buffered.
func (w *Writer) flush() error {
	if w.err == nil {
		if err := w.packets.ng.Flush(); err != nil {
			w.err = writeError(err)
		}
	}
	return w.err
}

// Flush writes everything that is buffered, and the beginnings of FPDUs whose rest has not come, so that the file can be
// read. It returns the first error of writing, and one that Is verbs.ErrClosed after Close.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("capture: flush: %w", verbs.ErrClosed)
	}
	w.releaseAll(false)
	return w.flush()
}

// Err returns the first error of writing, nil if there was none so far.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close completes the file. What NICs send and receive afterwards is not recorded. It returns the first error of writing,
// each time that it is called. It does not close the file, which is the caller's.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.releaseAll(true)
		w.closed = true
		_ = w.flush()
		w.conns, w.scratch = nil, nil
	}
	return w.err
}

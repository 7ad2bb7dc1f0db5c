// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// Sizes and limits of a Writer.
const (
	// bufferSize is how many bytes are buffered before they are written.
	bufferSize = 64 << 10
	// maxText is the longest option in a file, because its length field has 16 bits.
	maxText = 1<<16 - 1
	// minSnapLen is the length of the longest headers of a packet without data: IPv6, TCP and the
	// handshake options.
	minSnapLen = 40 + 20 + 8
	// headerRoom exceeds the length of the file header without Name and Comment.
	headerRoom = 1024
	// maxHeld limits the bytes of incomplete FPDUs across all connections. Beyond that, incomplete
	// FPDUs are written as they are.
	maxHeld = 4 << 20
)

// Config configures a Writer. The zero value selects every default.
type Config struct {
	// Name is the name of the interface in the file, such as the device's name (default "usiw"; at
	// most 65,535 bytes).
	Name string
	// Comment is a comment in the file header (default: a note that the packet headers are
	// synthetic; at most 65,535 bytes).
	Comment string
	// SnapLen is how many bytes of each packet are stored, counted from the IP header; the file
	// also records the original length (default 0 = all bytes; at least 68). 128 is enough for all
	// MPA, DDP and RDMAP headers. A CRC can only be checked if the whole FPDU is stored.
	SnapLen int
	// MaxBytes limits the length of the file (default 0 = no limit; at least 1,024 more than the
	// lengths of Name and Comment together). Recording ends at the first packet that does not fit:
	// the file is complete and valid up to that point, and later packets cost next to nothing.
	// [Writer.Full] reports whether this has happened.
	MaxBytes int64
	// Unbuffered writes each packet as soon as it has been sent or received. Otherwise packets are
	// buffered until the buffer is full or Flush is called, and are lost if the program is killed.
	Unbuffered bool
}

const defaultComment = "Streams of a user-space iWARP RNIC: bytes, addresses and times are real, TCP/IP headers are made up."

// fill validates cfg and returns it with the defaults filled in.
func (cfg Config) fill() (Config, error) {
	for _, f := range []struct {
		name, fill string
		v          *string
	}{
		{"Name", "usiw", &cfg.Name},
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
	if cfg.SnapLen != 0 && cfg.SnapLen < minSnapLen {
		return cfg, fmt.Errorf("capture: Config.SnapLen: %d is neither 0 nor %d or more: %w", cfg.SnapLen, minSnapLen,
			verbs.ErrInvalid)
	}
	if least := int64(headerRoom + len(cfg.Name) + len(cfg.Comment)); cfg.MaxBytes != 0 && cfg.MaxBytes < least {
		return cfg, fmt.Errorf("capture: Config.MaxBytes: %d is neither 0 nor %d or more: %w", cfg.MaxBytes, least,
			verbs.ErrInvalid)
	}
	return cfg, nil
}

// Writer writes a pcapng file. It is a usiw.Tap for one or more NICs. All methods may be called
// concurrently.
//
// It uses a few hundred bytes for every connection that it has recorded, and holds at most one
// incomplete FPDU for each direction; together these take at most 4 MiB.
type Writer struct {
	name       string // of the interface
	unbuffered bool

	mu      sync.Mutex // guards the fields below; held while the file is written, so NICs wait for that
	packets packetWriter
	book    book
	conns   map[link]*connection
	seen    uint32 // number of connections so far
	scratch []byte // assembles FPDUs that arrive in one packet
	held    int    // sum of flow.releasable
	err     error  // the first write error; nothing is written after it
	closed  bool
}

var _ usiw.Tap = (*Writer)(nil)

// New starts a file on w. It returns an error if cfg is invalid or the file header cannot be
// written. The goroutines of the NICs call w.Write, one at once, and wait for it. The caller closes
// w after the Writer.
func New(w io.Writer, cfg Config) (*Writer, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, err
	}
	c := &Writer{name: cfg.Name, unbuffered: cfg.Unbuffered, conns: make(map[link]*connection),
		scratch: make([]byte, 0, maxUnit)}
	c.book.init()
	if err := c.packets.init(w, cfg); err != nil {
		return nil, writeError(err)
	}
	return c, nil
}

// writeError adds context to a write error.
func writeError(err error) error { return fmt.Errorf("capture: write: %w", err) }

// Packet implements usiw.Tap. It does nothing after Close or a write error, or when the file is
// full.
func (w *Writer) Packet(p *usiw.Packet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.err != nil || w.packets.full || size(p.Data) == 0 {
		return
	}
	local, remote := w.book.pair(p.Local, p.Remote)
	c := w.connection(local, remote, p)
	if i, ok := c.sees(local, p.Out); ok {
		w.add(c, i, p)
	}
	if w.unbuffered {
		_ = w.flush() // Err returns the error
	}
}

// connection returns the connection to which p belongs, or a new one if p opens it.
func (w *Writer) connection(local, remote endpoint, p *usiw.Packet) *connection {
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

// write writes one packet and records the error.
func (w *Writer) write(p packet) {
	if w.err != nil || w.packets.full {
		return
	}
	if err := w.packets.write(&p); err != nil {
		w.err = writeError(err)
	}
}

// flush writes the buffered bytes.
func (w *Writer) flush() error {
	if w.err == nil {
		if err := w.packets.ng.Flush(); err != nil {
			w.err = writeError(err)
		}
	}
	return w.err
}

// Flush writes all buffered bytes and incomplete FPDUs, so that the file can be read. It returns
// the first write error. After Close it returns an error that wraps verbs.ErrClosed.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("capture: flush: %w", verbs.ErrClosed)
	}
	w.releaseAll(false)
	return w.flush()
}

// Err returns the first write error, or nil.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Full reports whether packets are missing at the end of the file because it reached
// Config.MaxBytes.
func (w *Writer) Full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.packets.full
}

// Close completes the file. Traffic after that is not recorded. Every call returns the first write
// error. Close does not close the underlying writer; the caller does.
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

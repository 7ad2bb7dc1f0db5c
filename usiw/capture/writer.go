// SPDX-License-Identifier: BSD-3-Clause

package capture

import (
	"fmt"
	"io"
	"sync"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/verbs"
)

// Implementation constants.
const (
	// bufferSize is how many bytes are collected before they are written.
	bufferSize = 64 << 10
	// maxText is the largest length of an option in a file, which a 16-bit field gives.
	maxText = 1<<16 - 1
	// minSnapLen are the headers of the largest packet without data: IPv6, TCP and the options of a
	// handshake.
	minSnapLen = 40 + 20 + 8
	// headerRoom is more than the header of a file takes apart from Name and Comment.
	headerRoom = 1024
	// maxHeld limits the bytes of incomplete FPDUs of all connections. If there are more, the
	// incomplete FPDUs are written as they are.
	maxHeld = 4 << 20
)

// Config is the configuration of a Writer. The zero value has all defaults.
type Config struct {
	// Name is the name of the interface in the file, such as the device's (default "usiw"; at most
	// 65,535 bytes).
	Name string
	// Comment is a comment in the header of the file (default: that the headers are made up; at
	// most 65,535 bytes).
	Comment string
	// SnapLen is how many bytes of a packet are stored, from the IP header on; the file says how
	// long it was (default 0 = all of it; at least 68). With 128 all headers of MPA, DDP and RDMAP
	// are stored. A CRC needs all of its FPDU.
	SnapLen int
	// MaxBytes limits the length of the file (default 0 = no limit; at least 1,024 more than Name
	// and Comment have). The first packet that does not fit ends the recording: the file is
	// complete and valid up to the packet before, and later ones cost next to nothing.
	// [Writer.Full] tells.
	MaxBytes int64
	// Unbuffered writes each packet when it has been sent or received. Otherwise packets are in a
	// buffer until it is full, or until Flush, and those of a program that is killed are lost.
	Unbuffered bool
}

const defaultComment = "Streams of a user-space iWARP RNIC: bytes, addresses and times are real, TCP/IP headers are made up."

// fill checks cfg and returns it with the defaults filled in.
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

// Writer writes a pcapng file. It is a usiw.Tap for one or several NICs. All methods may be called
// concurrently.
//
// It keeps a few hundred bytes for every connection that it has seen, and at most one incomplete
// FPDU for each direction; these take at most 4 MiB together.
type Writer struct {
	name       string // of the interface
	unbuffered bool

	mu      sync.Mutex // guards the fields below; held while the file is written, so the NICs wait for that
	packets packetWriter
	book    book
	conns   map[link]*connection
	seen    uint32 // connections that have begun
	scratch []byte // for FPDUs that arrive in one packet
	held    int    // sum of flow.releasable
	err     error  // the first write error; nothing is written after it
	closed  bool
}

var _ usiw.Tap = (*Writer)(nil)

// New begins a file on w. It fails if cfg is invalid or the header of the file cannot be written.
// The goroutines of the NICs call w.Write, one at a time, and wait for it. The caller closes w
// after the Writer.
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

// writeError adds the context to a write error.
func writeError(err error) error { return fmt.Errorf("capture: write: %w", err) }

// Packet implements usiw.Tap. After Close or a write error, or when the file is full, it does
// nothing.
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
		_ = w.flush() // Err has the error
	}
}

// connection returns the connection to which p belongs, a new one if p opens it.
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

// Flush writes all buffered bytes, and incomplete FPDUs, so that the file can be read. It returns
// the first write error. After Close its error Is verbs.ErrClosed.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("capture: flush: %w", verbs.ErrClosed)
	}
	w.releaseAll(false)
	return w.flush()
}

// Err returns the first write error, nil if there has been none.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Full reports whether packets are missing at the end of the file, because it has reached
// Config.MaxBytes.
func (w *Writer) Full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.packets.full
}

// Close completes the file. Bytes that NICs send and receive afterwards are not recorded. Every
// call returns the first write error. Close does not close the underlying file; the caller does.
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

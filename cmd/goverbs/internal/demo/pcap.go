// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"errors"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/usiw"
	"github.com/goverbs/goverbs/usiw/capture"
)

// Recording is a capture file of the messages that this process's RNIC sends and receives. Its
// methods may be called on nil, which means that nothing is recorded.
type Recording struct {
	name   string
	cfg    capture.Config
	file   *os.File // nil before it starts and after it ends
	writer *capture.Writer
	err    error // why it could not start
}

// StartRecording creates the file of a recording. It returns nil if the name is empty. The file may
// be a named pipe, which is opened when its reader opens it.
func StartRecording(name string, cfg capture.Config) *Recording {
	if name == "" {
		return nil
	}
	r := &Recording{name: name, cfg: cfg}
	var err error
	if r.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666); err == nil {
		if r.writer, err = capture.New(r.file, cfg); err != nil {
			err = errors.Join(err, r.file.Close())
		}
	}
	if err != nil {
		r.file, r.err = nil, r.named(err)
	}
	return r
}

// begun returns why the recording could not start.
func (r *Recording) begun() error {
	if r == nil {
		return nil
	}
	return r.err
}

// named adds the option and the file name to an error. It returns nil for nil.
func (r *Recording) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--pcap %s: %w", r.name, err)
}

// Config returns the configuration of a recorded RNIC.
func (r *Recording) Config() usiw.Config {
	if r == nil || r.writer == nil {
		return usiw.Config{} // not one whose Tap is a nil pointer
	}
	return usiw.Config{Tap: r.writer}
}

// remark reports that the recording reached its limit, or returns "".
func (r *Recording) remark() string {
	if r == nil || r.writer == nil || !r.writer.Full() {
		return ""
	}
	return fmt.Sprintf("--pcap %s: the file has reached its limit of %s bytes; what came later is not in it\n", r.name,
		thousands(int(r.cfg.MaxBytes)))
}

// Close completes the file. It returns every write error, once.
func (r *Recording) Close() error {
	if r == nil || r.file == nil {
		return nil
	}
	err := errors.Join(r.writer.Close(), r.file.Close())
	r.file = nil
	return r.named(err)
}

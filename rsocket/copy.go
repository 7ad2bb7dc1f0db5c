// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"errors"
	"io"
	"net"
)

// ReadFrom sends data from r until io.EOF. It reads directly into the memory that the device sends
// from, so the data is copied only once. Other Writes wait until it returns. If r is a
// *net.Buffers, ReadFrom calls [Conn.WriteBuffers].
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	if v, ok := r.(*net.Buffers); ok {
		return c.WriteBuffers(v)
	}
	n, err := c.readFrom(r)
	return n, err
}

func (c *Conn) readFrom(r io.Reader) (n int64, err error) {
	if err := c.enter(&c.wr); err != nil {
		return 0, opError("readfrom", c.local, c.remote, err)
	}
	defer c.wr.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		at, room, err := c.space()
		if err != nil {
			return n, opError("readfrom", c.local, c.remote, err)
		}
		c.mu.Unlock()
		k, readErr := r.Read(c.res.out[at : at+room : at+room])
		c.mu.Lock()
		if k < 0 || k > room {
			return n, opError("readfrom", c.local, c.remote, invalid("the reader returned %d for %d bytes", k, room))
		}
		if k > 0 {
			if err := c.writeError(); err != nil {
				return n, opError("readfrom", c.local, c.remote, err)
			}
			c.sendData(at, k)
			n += int64(k)
		}
		if errors.Is(readErr, io.EOF) {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}

// WriteBuffers sends the buffers in order, combining several in one message where they fit, and
// consumes them: whatever remains in v was not sent. In contrast, writing a net.Buffers with its
// own WriteTo calls Write once for each buffer.
func (c *Conn) WriteBuffers(v *net.Buffers) (int64, error) {
	n, err := c.writeBuffers(v)
	return n, opError("write", c.local, c.remote, err)
}

func (c *Conn) writeBuffers(v *net.Buffers) (n int64, err error) {
	if err := c.enter(&c.wr); err != nil {
		return 0, err
	}
	defer c.wr.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(*v) > 0 && len((*v)[0]) == 0 {
			*v = (*v)[1:]
		}
		if len(*v) == 0 {
			return n, c.writeError0(n)
		}
		at, room, err := c.space()
		if err != nil {
			return n, err
		}
		c.mu.Unlock()
		k, _ := v.Read(c.res.out[at : at+room]) // fills the slice as far as data is available
		c.mu.Lock()
		if err := c.writeError(); err != nil {
			return n, err
		}
		c.sendData(at, k)
		n += int64(k)
	}
}

// writeError0 returns the error of a Write that is done after n bytes. If n is 0, it is the error
// of an empty Write.
func (c *Conn) writeError0(n int64) error {
	if n > 0 {
		return nil
	}
	return c.writeError()
}

// WriteTo writes arriving data to w until the peer closes its direction. It passes w the memory
// that the device wrote to, without copying; w must not retain it, as io.Writer requires. Other
// Reads wait until it returns.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	if err := c.enter(&c.rd); err != nil {
		return 0, opError("writeto", c.local, c.remote, err)
	}
	defer c.rd.leave()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.await(&c.rd); err != nil {
			if err == io.EOF {
				return n, nil
			}
			return n, opError("writeto", c.local, c.remote, err)
		}
		at, run := c.in.run()
		c.mu.Unlock()
		k, writeErr := w.Write(c.res.ring[at : at+run : at+run])
		c.mu.Lock()
		if k < 0 || k > run {
			return n, opError("writeto", c.local, c.remote, invalid("the writer returned %d for %d bytes", k, run))
		}
		n += int64(k)
		if k > 0 {
			if err := c.consume(k); err != nil && err != io.EOF {
				return n, opError("writeto", c.local, c.remote, err)
			}
		}
		switch {
		case writeErr != nil:
			return n, writeErr
		case k < run:
			return n, io.ErrShortWrite
		}
	}
}

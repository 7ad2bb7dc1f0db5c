// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"errors"
	"io"
	"net"
)

// ReadFrom sends what r has until io.EOF. It reads directly into the memory from which the device
// sends, so the data are copied once. Other Writes wait until it returns. If r is a *net.Buffers,
// it is [Conn.WriteBuffers].
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

// WriteBuffers sends the buffers in order, several of them in one message where they fit, and
// consumes them: what remains in v has not been sent. A net.Buffers that is written to a Conn by
// its own WriteTo is sent with one Write for each buffer.
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
		k, _ := v.Read(c.res.out[at : at+room]) // it fills what is given, as far as there are data
		c.mu.Lock()
		if err := c.writeError(); err != nil {
			return n, err
		}
		c.sendData(at, k)
		n += int64(k)
	}
}

// writeError0 is the error of a Write of n bytes that has nothing more to do: like that of an empty
// Write, if n is 0.
func (c *Conn) writeError0(n int64) error {
	if n > 0 {
		return nil
	}
	return c.writeError()
}

// WriteTo writes what arrives to w until the peer's end. It gives w the memory into which the
// device has written, without a copy; w must not keep it, as io.Writer says. Other Reads wait until
// it returns.
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

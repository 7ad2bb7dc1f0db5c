// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Ends returns the names of the ways in which End can end a connection in the middle of traffic.
func Ends() []string {
	var names []string
	for _, e := range ends {
		names = append(names, e.name)
	}
	return names
}

var ends = []struct {
	name string
	run  func(c *Conn) error // returns only errors that must not occur
}{
	{"disconnect", func(c *Conn) error { return c.ID.Disconnect() }},
	{"close QP", func(c *Conn) error { return c.QP.Close() }},
	{"close ID", func(c *Conn) error { return c.ID.Close() }},
	{"QP to ERR", func(c *Conn) error { return c.QP.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState) }},
	{"close MR", func(c *Conn) error { return errors.Join(c.mem.Close(), c.ID.Disconnect()) }},
	{"wrong key", (*Conn).wrongKey},
	{"cut by the server", (*Conn).cut},
}

// End ends the connection in the numbered way, modulo their number, while Writes and Reads are in
// progress. It returns when the connection has ended and everything posted has completed. Any error
// is something Wrong.
func (c *Conn) End(way int) error {
	e := &ends[way%len(ends)]
	var wrs []verbs.SendWR
	for i := range 8 {
		off, n := c.part()
		if i%2 == 0 {
			wrs = append(wrs, c.write(i*256, off, min(n, 256)))
		} else {
			wrs = append(wrs, c.read(c.sge(regionLen/2, n), off))
		}
	}
	err := c.post(wrs...)
	if err == nil {
		err = e.run(c)
	}
	if err == nil {
		err = c.WaitEnd()
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errTraffic, e.name, err)
	}
	c.counts.Add("end: "+e.name, 1)
	return nil
}

// wrongKey writes with an invalid key.
func (c *Conn) wrongKey() error {
	wr := c.write(0, wordLen, 100)
	wr.RKey ^= 0x5500
	return c.post(wr)
}

// cut asks the server to close the connection.
func (c *Conn) cut() error {
	off, b := c.slot(0)
	clear(b[:headLen])
	b[0], b[1] = kindCut, byte(c.rng.Uint32())
	return c.post(verbs.SendWR{ID: c.id(), Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGL: c.sge(off, headLen)})
}

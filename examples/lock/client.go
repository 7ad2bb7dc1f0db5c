// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// The server's words.
const (
	lockWord   = 0 // bits 0 to 31: the name of the client that holds the lock, 0 = none; bits 32 to 63: the token
	recordWord = 8 // bits 0 to 31: the value; bits 32 to 63: the token of the client that wrote it
	words      = 16
)

const (
	ownerMask = 1<<32 - 1
	all       = ^uint64(0)
)

// errLost reports that the lock belongs to another client.
var errLost = errors.New("the lock has been taken over")

// staleError reports that a client with a newer token has changed the record.
type staleError struct{ token, newest uint32 }

func (e *staleError) Error() string {
	return fmt.Sprintf("a change with token %d was refused: the record has one with token %d", e.token, e.newest)
}

// client is a connection to the server, for use by one goroutine.
type client struct {
	name  uint32 // not 0
	ep    *cm.Endpoint
	words verbs.Remote
	sink  []verbs.SGE
	found *atomic.Uint64 // the contents of the sink: the original value of an atomic
}

func dial(ctx context.Context, address string, dev *verbs.Device, name uint32) (c *client, err error) {
	c = &client{name: name}
	if c.ep, err = cm.Dial(ctx, address, cm.Config{Device: dev}, cm.EndpointConfig{Memory: 8}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.words, err = verbs.ParseRemote(c.ep.PrivateData()); err != nil {
		return nil, err
	}
	sge, err := c.ep.MR().SGE(0, 8)
	if err != nil {
		return nil, err
	}
	c.sink = []verbs.SGE{sge}
	c.found, err = c.ep.MR().Word(0)
	return c, err
}

func (c *client) close() { _ = c.ep.Close() }

// swap replaces the bits in swapMask of a word if its bits in compareMask equal those of compare.
// It returns the previous value of the word.
func (c *client) swap(ctx context.Context, word, compare, compareMask, swap, swapMask uint64) (uint64, error) {
	at := verbs.Remote{Addr: c.words.Addr + word, Length: 8, RKey: c.words.RKey}
	_, err := c.ep.Do(ctx, ext.MaskedCmpSwapWR(at, compare, compareMask, swap, swapMask, c.sink...))
	return c.found.Load(), err
}

// lock waits until the lock is free, acquires it, and returns the token. Only the owner's bits are
// compared and swapped, so the token may have any value.
func (c *client) lock(ctx context.Context) (token uint32, err error) {
	for {
		was, err := c.swap(ctx, lockWord, 0, ownerMask, uint64(c.name), ownerMask)
		if err != nil {
			return 0, err
		}
		if was&ownerMask == 0 {
			return uint32(was >> 32), nil
		}
		select {
		case <-time.After(50 * time.Microsecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// unlock releases the lock and advances the token. The error is errLost if the lock belongs to
// another client.
func (c *client) unlock(ctx context.Context, token uint32) error {
	return c.change(ctx, c.name, token, 0)
}

// takeOver takes the lock from a client that holds it with the given token, and returns the new
// token.
func (c *client) takeOver(ctx context.Context, from, token uint32) (uint32, error) {
	return token + 1, c.change(ctx, from, token, c.name)
}

// change transfers the lock from a client with the given token to another one, with the next token.
func (c *client) change(ctx context.Context, from, token, to uint32) error {
	mine := uint64(token)<<32 | uint64(from)
	was, err := c.swap(ctx, lockWord, mine, all, uint64(token+1)<<32|uint64(to), all)
	if err == nil && was != mine {
		err = errLost
	}
	return err
}

// read returns the value of the record.
func (c *client) read(ctx context.Context) (uint32, error) {
	was, err := c.swap(ctx, recordWord, 0, 0, 0, 0) // changes nothing
	return uint32(was), err
}

// write stores a value in the record, unless a client with a newer token has written it.
func (c *client) write(ctx context.Context, token, value uint32) error {
	for guess := uint64(0); ; {
		was, err := c.swap(ctx, recordWord, guess, all, uint64(token)<<32|uint64(value), all)
		switch {
		case err != nil:
			return err
		case was == guess:
			return nil
		case uint32(was>>32) > token:
			return &staleError{token, uint32(was >> 32)}
		}
		guess = was
	}
}

// SPDX-License-Identifier: BSD-3-Clause

package demo

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
	"github.com/goverbs/goverbs/cmd/goverbs/internal/shutdown"
	"github.com/goverbs/goverbs/verbs"
)

// Time limits of the listening side.
const (
	listenerPatience = 6 * time.Minute // for the driver, which may itself wait for its clients
	acceptPatience   = 10 * time.Second
	closePatience    = 10 * time.Second
)

// listener is the listening side, whose memory is the target of the steps.
type listener struct {
	o      Options
	out    *console
	result *runResult
	token  uint64
	ln     *cm.Listener

	mu      sync.Mutex // guards the fields below
	driver  bool       // one is connected or connecting
	current *host      // what it works on
	guests  []*guest   // connections of client processes

	wg      sync.WaitGroup // requests being answered
	arrived chan struct{}  // closed once the driver is connected
	*host                  // its connection, from then on
	remark  string         // about the current step, for people
}

// host is the listener's end of the driver's connection, with the memory for the driver and its
// clients.
type host struct {
	end   *endpoint
	words *verbs.MR // targets of atomics
	data  *verbs.MR // target of Writes, source of Reads
}

// guest is the connection of a client process, which accesses host's memory without completions on
// this side.
type guest struct {
	id *cm.ID
	qp *verbs.QP
}

// runListener serves one demo.
func runListener(ctx context.Context, dev *verbs.Device, o Options, out *console, stdout io.Writer, result *runResult) (
	err error) {
	l := &listener{o: o, out: out, result: result, token: randomWord(), arrived: make(chan struct{})}
	if l.ln, err = cm.Listen(ctx, o.Listen, cm.Config{Device: dev}); err != nil {
		return err
	}
	late := shutdown.Late(ctx)
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1)
	l.wg.Go(func() { failed <- l.acceptAll(ctx) })
	defer func() {
		err = errors.Join(err, l.ln.Close())
		cancel()
		err = errors.Join(err, shutdown.InTime(late, func() error {
			l.wg.Wait()
			return l.close()
		}))
	}()
	if o.Child {
		err = json.NewEncoder(stdout).Encode(listening{l.ln.Addr().String()})
	} else {
		tell := out.say
		if o.JSON {
			tell = out.note
		}
		tell("listening on %v, %s\n", l.ln.Addr(), devices.Text(l.ln.Devices()))
	}
	if err != nil {
		return err
	}
	select {
	case <-l.arrived:
		l.host = l.current
		l.result.Device = l.end.ctx.Device().Name()
	case err := <-failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return l.serve(ctx)
}

// acceptAll answers requests until the listener is closed.
func (l *listener) acceptAll(ctx context.Context) error {
	for {
		req, err := l.ln.Accept(ctx)
		if err != nil {
			return err
		}
		l.wg.Go(func() {
			if err := l.answer(ctx, req); err != nil && ctx.Err() == nil {
				l.out.note("connection from %v: %v\n", req.RemoteAddr(), err)
			}
		})
	}
}

var (
	errBusy    = errors.New("a demo is in progress")
	errNoGuest = errors.New("not a client of the demo in progress")
)

// answer accepts one driver and its clients, and rejects everyone else.
func (l *listener) answer(ctx context.Context, req *cm.Request) error {
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	h, err := decodeHello(req.PrivateData())
	switch {
	case err != nil:
		return errors.Join(err, req.Reject([]byte(errStranger.Error())))
	case h.Role == roleDriver:
		l.mu.Lock()
		busy := l.driver
		l.driver = true
		l.mu.Unlock()
		if busy {
			return errors.Join(errBusy, req.Reject([]byte(errBusy.Error())))
		}
		if err := l.acceptDriver(ctx, req, h); err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.driver, l.current = false, nil // another driver may try
			return err
		}
		close(l.arrived)
		return nil
	case h.Role == roleClient && h.Token == l.token:
		return l.acceptClient(ctx, req, h)
	}
	return errors.Join(errNoGuest, req.Reject([]byte(errNoGuest.Error())))
}

// acceptDriver allocates the memory and connects the driver to it.
func (l *listener) acceptDriver(ctx context.Context, req *cm.Request, h hello) error {
	e, err := newEndpoint(req.Context(), req.BindQP, listenerPatience)
	if err != nil {
		return err
	}
	host := &host{end: e}
	e.peerOps = verbs.OpSet(h.Ops)
	const access = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	atomic := verbs.AccessFlags(0)
	if e.ctx.Supports(verbs.OpFetchAdd) || e.ctx.Supports(verbs.OpCmpSwap) {
		atomic = verbs.AccessRemoteAtomic
	}
	if host.words, err = e.allocMR(wordsSize, access|atomic); err == nil {
		host.data, err = e.allocMR(dataSize, access)
	}
	if err == nil {
		l.mu.Lock()
		l.current = host // clients need it as soon as the driver knows the token
		l.mu.Unlock()
		e.id, err = req.Accept(ctx, e.qp, cm.ConnParam{PrivateData: l.welcome(host, h)})
	}
	if err != nil {
		return errors.Join(err, e.close())
	}
	return nil
}

// welcome returns the private data for accepting a request.
func (l *listener) welcome(host *host, h hello) []byte {
	return encodePrivate(&welcome{Magic: magic, Version: version, BigEndian: bigEndian(), Nonce: h.Nonce,
		Token: l.token, WordsAddr: host.words.Addr(), WordsKey: host.words.RKey(), DataAddr: host.data.Addr(),
		DataKey: host.data.RKey(),
		Ops:     uint32(host.end.ctx.Ops())})
}

// acceptClient connects a client process to the driver's memory.
func (l *listener) acceptClient(ctx context.Context, req *cm.Request, h hello) error {
	l.mu.Lock()
	host := l.current
	l.mu.Unlock()
	if host == nil {
		return errors.Join(errNoGuest, req.Reject([]byte(errNoGuest.Error())))
	}
	e := host.end
	// No completions on this side: a client's operations are all one-sided.
	qp, err := e.pd.CreateQP(
		verbs.QPConfig{SendCQ: e.sends, RecvCQ: e.recvs, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
	if err != nil {
		return err
	}
	id, err := req.Accept(ctx, qp, cm.ConnParam{PrivateData: l.welcome(host, h)})
	if err != nil {
		return errors.Join(err, qp.Close())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests = append(l.guests, &guest{id, qp})
	return nil
}

// close closes the connections and releases everything. No request is being answered at this point.
func (l *listener) close() error {
	var err error
	for _, g := range l.guests {
		err = errors.Join(err, g.id.Close(), g.qp.Close())
	}
	l.guests = nil
	if l.current != nil {
		err = errors.Join(err, l.current.end.close())
	}
	return err
}

// serve follows the driver through its steps.
func (l *listener) serve(ctx context.Context) error {
	for _, s := range steps() {
		c := newCheck(s.name, l.o.Breaks)
		l.remark = ""
		var err error
		lack := l.end.lack(&s)
		if lack.skipped == "" {
			if err = l.follow(ctx, &s, c); err != nil {
				c.fail("%w", err)
			}
		}
		l.result.outcome(&s, lack, c, l.out, l.remark)
		if c.err != nil && ctx.Err() == nil {
			l.out.note("step %s: %v\n", s.name, c.err)
		}
		if err != nil {
			return errNotVerified
		}
	}
	return nil
}

// follow performs the listener's part of one step.
func (l *listener) follow(ctx context.Context, s *step, c *check) error {
	l.out.begin(s.name, 0)
	begin, err := l.end.takeControl(ctx, s.name, phaseBegin)
	if err != nil {
		return err
	}
	l.out.begin(s.name, begin.Count)
	p := pattern{begin.Seed}
	if s.prepare != nil {
		s.prepare(l, p)
	}
	if err := l.end.sendControl(ctx, &control{Step: s.name, Phase: phaseReady}); err != nil {
		return err
	}
	if s.name == "close" {
		return l.disconnected(ctx, c)
	}
	if s.serve != nil {
		if err := s.serve(ctx, l, c, p, begin.Count); err != nil {
			return err
		}
	}
	found, err := l.end.takeControl(ctx, s.name, phaseCheck)
	if err != nil {
		return err
	}
	if s.verify != nil {
		s.verify(l, c, found.Words)
		l.out.progress(begin.Count, 0)
	}
	result := control{Step: s.name, Phase: phaseResult}
	c.tell(&result)
	c.peer("connecting side", &found)
	return l.end.sendControl(ctx, &result)
}

// disconnected is the last step: the driver closes the connection.
func (l *listener) disconnected(ctx context.Context, c *check) error {
	late := time.NewTimer(closePatience)
	defer late.Stop()
	select {
	case <-l.end.id.Done():
	case <-late.C:
		return fmt.Errorf("the connection has not ended after %v", closePatience)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	is(c, "the state after the peer's Disconnect", l.end.qp.State(), verbs.QPStateErr)
	is(c, "the end of the connection by the peer", errors.Is(l.end.qp.Err(), io.EOF), true)
	if err := l.ln.Close(); err != nil {
		return err
	}
	l.wg.Wait() // no further guests
	c.noError("closing the listening end", l.close())
	l.out.progress(1, 0)
	return nil
}

// verifyConnect compares the token that the private data carried.
func verifyConnect(l *listener, c *check, words []uint64) {
	if c.count("the number of words that the driver told", uint64(len(words)), 1); len(words) != 1 {
		return
	}
	c.word("the token in the private data", words[0], l.token)
	l.remark = fmt.Sprintf("%v, %v to %v", l.end.ctx.Device(), l.end.id.RemoteAddr(), l.end.id.LocalAddr())
}

// prepareWord returns a function that sets word i to 0.
func prepareWord(i int) func(*listener, pattern) {
	return func(l *listener, _ pattern) { l.setWord(i, 0) }
}

// verifyWord returns a function that compares word i with the driver's result.
func verifyWord(i int) func(*listener, *check, []uint64) {
	return func(l *listener, c *check, words []uint64) {
		if c.count("the number of words that the driver told", uint64(len(words)), 1); len(words) != 1 {
			return
		}
		c.word("the word in memory", l.word(i), words[0])
	}
}

func (l *listener) word(i int) uint64 {
	return binary.NativeEndian.Uint64(l.words.Bytes()[wordSpacing*i:])
}

func (l *listener) setWord(i int, v uint64) {
	binary.NativeEndian.PutUint64(l.words.Bytes()[wordSpacing*i:], v)
}

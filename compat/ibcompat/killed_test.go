// SPDX-License-Identifier: BSD-3-Clause

package ibcompat_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/internal/testprogram"
	"github.com/goverbs/goverbs/verbs"
)

// A process is killed while its connections are in every phase of their lifetime: it connects
// several QPs, uses them for a while, closes them in various ways, and starts over. The test is the
// other end of all of these connections.
const (
	killedVariable = "GOVERBS_KILLED" // in the process: how its QPs are connected
	killedRounds   = 2                // processes, for each way
	killedQPs      = 6                // at once
	killedLimit    = 30 * time.Second
)

// killedWays maps each way of connecting QPs to what both sides do.
var killedWays = map[string]func(t *testing.T, ctx *verbs.Context, p *partner){
	"calls": func(t *testing.T, ctx *verbs.Context, p *partner) {
		if p.mortal {
			callAgain(t, ctx, p)
		} else {
			answerAll(t, ctx, p)
		}
	},
	"is called": func(t *testing.T, ctx *verbs.Context, p *partner) {
		if p.mortal {
			answerAll(t, ctx, p)
		} else {
			callAgain(t, ctx, p)
		}
	},
	"by hand": handsOver,
}

// partner is the other process. Each reads what the other writes.
type partner struct {
	in     *bufio.Reader
	out    io.Writer
	gone   context.Context // done when the process is killed
	mortal bool            // this is the process that will be killed
}

// line returns the next line of the partner, or "" if there are no more.
func (p *partner) line() string {
	s, _ := p.in.ReadString('\n')
	return strings.TrimSpace(s)
}

// TestKilled checks that whatever phase its connections are in when a process is killed, the other
// side gets each completion exactly once, in order and with a reason, can close everything, and can
// connect to the next process.
func TestKilled(t *testing.T) {
	if way := os.Getenv(killedVariable); way != "" {
		forever, cancel := context.WithTimeout(context.Background(), testprogram.Limit)
		defer cancel()
		fmt.Println("ready")
		_, dev := newIWARP(t, sometimesPlain(), ibcompat.Config{})
		killedWays[way](t, open(t, dev), &partner{bufio.NewReader(os.Stdin), os.Stdout, forever, true})
		<-forever.Done()
		return
	}
	for way := range killedWays {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			_, dev := newIWARP(t, sometimesPlain(), ibcompat.Config{})
			ctx := open(t, dev)
			rounds := killedRounds
			if way == "by hand" {
				rounds = 1 // those whose peer never appears wait for 4 s
			}
			for i := range rounds {
				t.Run(fmt.Sprint(i), func(t *testing.T) { killed(t, ctx, way) })
			}
		})
	}
}

func sometimesPlain() verbs.OpSet {
	if rand.IntN(2) == 0 {
		return 0
	}
	return ext.Operations
}

// killed starts a process, kills it some time later, and acts as its partner until then.
func killed(t *testing.T, ctx *verbs.Context, way string) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), killedVariable+"="+way)
	from, to, err := os.Pipe()
	require.NoError(t, err)
	defer from.Close()
	cmd.Stdout = to
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	p := testprogram.Start(t, cmd)
	require.NoError(t, to.Close()) // the process has it
	gone, cancel := context.WithCancel(context.Background())
	other := &partner{bufio.NewReader(from), stdin, gone, false}
	require.Equal(t, "ready", other.line())
	done := make(chan error, 1)
	go func() {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		done <- p.Kill()
		cancel()
	}()
	killedWays[way](t, ctx, other)
	require.NoError(t, <-done)
}

// answerAll sends an address to the partner and accepts all calls there.
func answerAll(t *testing.T, ctx *verbs.Context, p *partner) {
	ln, err := cm.Listen(p.gone, "127.0.0.1:0", cm.Config{Context: ctx})
	require.NoError(t, err)
	fmt.Fprintln(p.out, ln.Addr()) // the partner may be dead
	var all sync.WaitGroup
	for {
		req, err := ln.Accept(p.gone)
		if err != nil {
			break
		}
		all.Go(func() {
			e := newEnd(t, ctx, verbs.QPConfig{})
			id, err := req.Accept(soon(t), e.qp, cm.ConnParam{PrivateData: e.mr.Remote().Append(nil)})
			if err != nil {
				unlessKilled(t, p, err)
				return
			}
			e.id = id
			e.lives(p, req.PrivateData())
		})
	}
	all.Wait()
	require.NoError(t, ln.Close())
}

// callAgain connects several QPs at once to the address that the partner sends.
func callAgain(t *testing.T, ctx *verbs.Context, p *partner) {
	address := p.line()
	if address == "" {
		return
	}
	var all sync.WaitGroup
	for range killedQPs {
		all.Go(func() {
			for p.gone.Err() == nil {
				e := newEnd(t, ctx, verbs.QPConfig{})
				id, err := cm.Resolve(soon(t), address, cm.Config{Context: ctx})
				if err != nil {
					unlessKilled(t, p, err)
					continue
				}
				if err := id.Connect(soon(t), e.qp, cm.ConnParam{PrivateData: e.mr.Remote().Append(nil)}); err != nil {
					unlessKilled(t, p, err)
					_ = id.Close() // it has failed
					continue
				}
				e.id = id
				e.lives(p, id.PrivateData())
			}
		})
	}
	all.Wait()
}

// unlessKilled reports an error unless it is due to the partner's death.
func unlessKilled(t *testing.T, p *partner, err error) {
	if !p.mortal && errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	<-p.gone.Done()
}

// handsOver sends the QPs of this side to the partner and brings them up at different times.
func handsOver(t *testing.T, ctx *verbs.Context, p *partner) {
	var ends [killedQPs]*end
	for i := range ends {
		ends[i] = newEnd(t, ctx, verbs.QPConfig{})
		ends[i].toINIT()
		fmt.Fprintf(p.out, "%d %x\n", ends[i].qp.Num(), ends[i].mr.Remote().Append(nil))
	}
	var all sync.WaitGroup
	for _, e := range ends {
		var number uint32
		var remote []byte
		if n, _ := fmt.Sscanf(p.line(), "%d %x", &number, &remote); n != 2 {
			break
		}
		all.Go(func() {
			time.Sleep(time.Duration(rand.IntN(40)) * time.Millisecond)
			e.toRTS(number)
			e.lives(p, remote)
		})
	}
	all.Wait()
}

// lives uses a connection until it ends; the peer has sent the location of its memory. Errors are
// reported by the surviving process.
func (e *end) lives(p *partner, remote []byte) {
	to, err := verbs.ParseRemote(remote)
	if err != nil {
		e.Error(err)
		return
	}
	to.Addr += 1024
	l := &life{end: e}
	for range 8 {
		l.receive()
	}
	for rounds := rand.IntN(40); l.failed == verbs.WCSuccess && (rounds > 0 || !p.mortal); rounds-- {
		l.request(to)
		for l.failed == verbs.WCSuccess && l.sends.done < l.sends.posted && l.complete() {
		}
	}
	if p.mortal {
		switch rand.IntN(3) {
		case 0:
			_ = e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
		case 1:
			_ = e.qp.Close()
		}
		_ = e.id.Close()
		_ = e.qp.Close()
		return
	}
	if e.qp.Err() == nil {
		e.Errorf("no reason for %v", l.failed)
	}
	// one brought up manually stays up until a request fails
	_ = e.qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState)
	for l.sends.done < l.sends.posted || l.recvs.done < l.recvs.posted {
		if !l.complete() {
			return
		}
	}
	if err := errors.Join(e.id.Close(), e.qp.Close()); err != nil {
		e.Error(err)
	}
}

// life tracks what an end has posted and which of it has completed.
type life struct {
	*end
	sends, recvs struct{ posted, done uint64 }
	failed       verbs.WCStatus // of the first failed request
}

const recvID = 1 << 32 // set in the IDs of receives

func (l *life) receive() {
	if _, err := l.qp.PostRecv([]verbs.RecvWR{{ID: recvID | l.recvs.posted, SGL: l.sgl(2048, 64)}}); err != nil {
		l.Error(err)
	}
	l.recvs.posted++
}

// request posts some requests.
func (l *life) request(to verbs.Remote) {
	list := []verbs.SendWR{verbs.Send(l.sgl(0, 1+rand.IntN(64))...), verbs.Write(to, l.sgl(0, 64)...),
		verbs.FetchAdd(to, 1, l.sgl(72, 8)[0]), verbs.Read(to, l.sgl(80, 8)...), verbs.SendImm(7, l.sgl(0, 8)...)}
	list = list[rand.IntN(len(list)):]
	for i := range list {
		list[i].ID = l.sends.posted + uint64(i)
	}
	n, err := l.qp.PostSend(list)
	if err != nil {
		l.Error(err)
	}
	l.sends.posted += uint64(n)
}

// complete polls a completion, which must be the next one of its queue. It reports false if there
// is none.
func (l *life) complete() bool {
	ctx, cancel := context.WithTimeout(context.Background(), killedLimit)
	defer cancel()
	var wcs [1]verbs.WC
	if _, err := l.cq.Wait(ctx, wcs[:]); err != nil {
		l.Errorf("%+v, %+v, %v: %v", l.sends, l.recvs, l.failed, err)
		l.failed = verbs.WCGeneralErr
		return false
	}
	wc := wcs[0]
	queue := &l.sends
	if wc.ID >= recvID {
		queue = &l.recvs
	}
	if wc.ID&^recvID != queue.done {
		l.Errorf("%v where %d is next", wc, queue.done)
	}
	queue.done++
	switch {
	case wc.Status == verbs.WCSuccess:
		if queue == &l.recvs {
			l.receive()
		} else if l.failed != verbs.WCSuccess {
			l.Errorf("%v after %v", wc, l.failed)
		}
	case wc.Status != verbs.WCWRFlushErr &&
		(wc.Status != verbs.WCRetryExcErr || queue == &l.recvs || l.failed != verbs.WCSuccess):
		l.Errorf("%v after %v: %v", wc, l.failed, l.qp.Cause(&wc))
	case queue == &l.sends:
		l.failed = wc.Status
	}
	return true
}

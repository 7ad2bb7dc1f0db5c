// SPDX-License-Identifier: BSD-3-Clause

package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/verbs"
)

// Receives posted beyond RecvQueue: a reserve for messages that consume no credit, and those that
// wait to be posted again as a batch.
const (
	recvReserve = 8
	recvBatch   = 8
	extraRecvs  = recvReserve + recvBatch
)

// slotLen is the size of a slot. It holds an entry or a mapping, with a message at its end, while
// their request is posted.
const slotLen = 32

// resources holds the objects of a connection below its ID.
type resources struct {
	cfg   Config // with all defaults applied
	iwarp bool
	pd    *verbs.PD
	cq    *verbs.CQ
	qp    *verbs.QP

	// The memory that the peer may write: its table of entries, the area for mappings, and the
	// ring.
	remote *verbs.MR
	ring   []byte // the receive buffer
	ringAt int    // its offset

	// The memory of this side: the ring of data to send, a slot for each request, and 4 bytes for
	// each receive.
	local   *verbs.MR
	out     []byte // the send buffer
	slotsAt int
	recvsAt int
}

// newResources creates all objects, with the QP in RESET.
func newResources(vctx *verbs.Context, cfg Config) (*resources, error) {
	if err := usable(vctx.Device()); err != nil {
		return nil, err
	}
	attr, err := vctx.QueryDevice()
	if err != nil {
		return nil, err
	}
	if err := cfg.fit(vctx.Device(), &attr); err != nil {
		return nil, err
	}
	r := &resources{cfg: cfg, iwarp: vctx.Device().Info().Transport == verbs.TransportIWARP}
	if err := r.make(vctx); err != nil {
		return nil, and(err, r.close())
	}
	return r, nil
}

func (r *resources) make(vctx *verbs.Context) (err error) {
	if r.pd, err = vctx.AllocPD(); err != nil {
		return err
	}
	r.ringAt = roundUp(tableEntries*entryLen+r.cfg.Mappings*mappingLen, 64)
	if r.remote, err = r.pd.AllocMR(r.ringAt+r.cfg.RecvBuffer,
		verbs.AccessLocalWrite|verbs.AccessRemoteWrite); err != nil {
		return err
	}
	r.ring = r.remote.Bytes()[r.ringAt:]
	r.slotsAt = roundUp(r.cfg.SendBuffer, 64)
	r.recvsAt = r.slotsAt + r.cfg.SendQueue*slotLen
	if r.local, err = r.pd.AllocMR(r.recvsAt+(r.cfg.RecvQueue+extraRecvs)*messageLen,
		verbs.AccessLocalWrite); err != nil {
		return err
	}
	r.out = r.local.Bytes()[:r.cfg.SendBuffer]
	if r.cq, err = vctx.CreateCQ(verbs.CQConfig{CQE: r.cfg.SendQueue + r.cfg.RecvQueue + extraRecvs}); err != nil {
		return err
	}
	return r.makeQP()
}

// makeQP creates the QP with as much inline data as the device supports: a driver may refuse a
// large value instead of lowering it.
func (r *resources) makeQP() (err error) {
	for inline := r.cfg.Inline; ; {
		r.qp, err = r.pd.CreateQP(
			verbs.QPConfig{SendCQ: r.cq, RecvCQ: r.cq,
				Cap: verbs.QPCap{MaxSendWR: r.cfg.SendQueue, MaxRecvWR: r.cfg.RecvQueue + extraRecvs, MaxSendSGE: 1,
					MaxRecvSGE: 1, MaxInlineData: inline}})
		switch {
		case err == nil:
			r.cfg.Inline = r.qp.Cap().MaxInlineData
			return nil
		case inline == 0:
			return err
		case inline > DefaultInline:
			inline = DefaultInline
		case inline > entryLen:
			inline = entryLen
		default:
			inline = 0
		}
	}
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// data returns this side's private data.
func (r *resources) data() []byte {
	at, key := r.remote.Addr(), r.remote.RKey()
	d := connData{credits: uint16(r.cfg.RecvQueue), mappings: r.cfg.Mappings,
		table:  entry{at, key, tableEntries},
		buffer: entry{at + uint64(r.ringAt), key, uint32(firstHalf(r.cfg.RecvBuffer))}}
	return d.append(make([]byte, 0, privateLen))
}

// entryAt reads the entry that the peer wrote to the table and clears its slot. It returns false if
// there is none. Entries are little-endian on every host, because flagBigEndian is never set.
func (r *resources) entryAt(i int) (e entry, ok bool, err error) {
	addr, err := r.remote.Word(i * entryLen)
	if err != nil {
		return entry{}, false, err
	}
	rest, err := r.remote.Word(i*entryLen + 8)
	if err != nil {
		return entry{}, false, err
	}
	var b [entryLen]byte
	// the last word first: devices write in address order
	binary.NativeEndian.PutUint64(b[8:], rest.Load())
	binary.NativeEndian.PutUint64(b[:], addr.Load())
	e = entry{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])}
	if e.length == 0 {
		return entry{}, false, nil
	}
	rest.Store(0)
	return e, true, nil
}

// receive returns a receive request with the memory of slot i. Messages sent as immediate data need
// no memory, and rsockets on InfiniBand post none.
func (r *resources) receive(i uint32, sge []verbs.SGE) verbs.RecvWR {
	if !r.iwarp {
		return verbs.RecvWR{ID: uint64(i)}
	}
	sge[0] = verbs.SGE{Addr: r.local.Addr() + uint64(r.recvsAt) + uint64(i)*messageLen, Length: messageLen,
		LKey: r.local.LKey()}
	return verbs.RecvWR{ID: uint64(i), SGL: sge}
}

// received returns the memory of slot i.
func (r *resources) received(i uint64) []byte {
	at := r.recvsAt + int(i)*messageLen
	return r.local.Bytes()[at : at+messageLen]
}

// postAll posts every receive.
func (r *resources) postAll() error {
	wrs := make([]verbs.RecvWR, r.cfg.RecvQueue+extraRecvs)
	sges := make([]verbs.SGE, len(wrs))
	for i := range wrs {
		wrs[i] = r.receive(uint32(i), sges[i:i+1])
	}
	if n, err := r.qp.PostRecv(wrs); err != nil {
		return fmt.Errorf("receive %d: %w", n, err)
	}
	return nil
}

// closeQP destroys the QP. After that, the device no longer accesses the memory.
func (r *resources) closeQP() error { return r.qp.Close() }

// close closes all existing objects.
func (r *resources) close() error {
	return errors.Join(r.qp.Close(), r.cq.Close(), r.local.Close(), r.remote.Close(), r.pd.Close())
}

// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// Two connected endpoints share words of memory. Each has a region whose first three words its peer
// reads or writes:
//
//	fence   the peer reads it in Shutdown, to confirm that everything before the Read has arrived
//	told    the peer writes it in Shutdown, with ShutdownBoth (endpoint_both.go)
//	credit  the peer writes it: receives that it posted since its offer (endpoint_credit.go)
//
// The region has three more words, the local buffers of these requests. The key gives the peer
// access to them too, but a peer that changes them affects only what it reads or receives itself.
//
// An endpoint offers its words in FenceLen bytes at the end of its private data:
//
//	8 bytes  offerMark
//	8        address of the region
//	4        its key
//	4        flags
//	4        receives posted by this endpoint, for flagCredits; 0 = it does not count them
//
// A dialed endpoint offers credits, and an accepted one does if it was offered them. With
// ShutdownBoth both sides always make an offer. On kernel siw they also do, for the fence: any
// device answers a Read of 0 bytes, which needs no key, but kernel siw answers it wrongly while it
// sends.
type words struct {
	mr   *verbs.MR      // wordsLen bytes; nil if neither side makes an offer
	peer verbs.Remote   // the three words of the peer; Length is 0 if the peer made no offer
	told *atomic.Uint64 // the own word; nil without ShutdownBoth
}

// Offsets in the region.
const (
	fenceWord  = 0
	toldWord   = 8
	creditWord = 16
	peersLen   = 24 // end of what the peer uses
	sinkWord   = 24 // the fence reads into it
	oneWord    = 32 // written to the peer's told: any value but 0
	postedWord = 40 // written to the peer's credit
	wordsLen   = 48
)

// Flags of an offer.
const (
	flagBoth    = 1 // ShutdownBoth
	flagCredits = 2 // the sender of a message waits until it has credit for it
)

// offerMark identifies an offer: other private data do not contain it by chance.
var offerMark = [8]byte{0xf3, 0x9e, 0x1d, 0x5a, 0xc4, 0x07, 0x6b, 0x82}

// FenceLen is the number of bytes that an Endpoint appends to its private data. With them two
// Endpoints agree on credits ([Endpoint.Send]) and on how to disconnect ([Endpoint.Shutdown]). A
// dialed Endpoint always appends them, unless EndpointConfig.NoCredits is set; an accepted one does
// if its peer did. Both do if ShutdownBoth is set, or on kernel siw. The bytes count toward the
// maximum of ConnParam.PrivateData. [Endpoint.PrivateData] omits them; [Request.PrivateData] and
// [ID.PrivateData] include them.
const FenceLen = len(offerMark) + 8 + 4 + 4 + 4

// offer is what an endpoint advertises at the end of its private data.
type offer struct {
	addr  uint64
	rkey  uint32
	flags uint32
	recvs uint32
}

func (o *offer) append(b []byte) []byte {
	b = append(b, offerMark[:]...)
	b = binary.BigEndian.AppendUint64(b, o.addr)
	b = binary.BigEndian.AppendUint32(b, o.rkey)
	b = binary.BigEndian.AppendUint32(b, o.flags)
	return binary.BigEndian.AppendUint32(b, o.recvs)
}

// findOffer returns the offer at the end of the peer's private data, and the offset at which it
// begins. InfiniBand pads private data with zeros.
func findOffer(private []byte) (at int, o offer, ok bool) {
	at = bytes.LastIndex(private, offerMark[:])
	if at < 0 || len(private)-at < FenceLen || len(bytes.Trim(private[at+FenceLen:], "\x00")) > 0 {
		return 0, o, false
	}
	b := private[at+len(offerMark):]
	o = offer{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:]),
		binary.BigEndian.Uint32(b[16:])}
	return at, o, o.addr+peersLen > o.addr && o.flags&^(flagBoth|flagCredits) == 0
}

// offersCredits reports whether the private data contain an offer of credits.
func offersCredits(private []byte) bool {
	_, o, ok := findOffer(private)
	return ok && o.flags&flagCredits != 0
}

// offersBoth returns an error unless the private data contain an offer with ShutdownBoth.
func offersBoth(private []byte) error {
	if _, o, ok := findOffer(private); !ok || o.flags&flagBoth == 0 {
		return fmt.Errorf("%w: the peer is no Endpoint with ShutdownBoth", verbs.ErrNotSupported)
	}
	return nil
}

// makeWords allocates the region. remote is the peer's access rights.
func (e *Endpoint) makeWords(remote verbs.AccessFlags) (err error) {
	if e.words.mr, err = e.pd.AllocMR(wordsLen, verbs.AccessLocalWrite|remote); err != nil {
		return err
	}
	e.undo = append(e.undo, e.words.mr.Close)
	e.words.mr.Bytes()[oneWord] = 1
	return nil
}

// offerWords allocates the region for the peer, if something needs it, and appends the offer to the
// private data.
func (e *Endpoint) offerWords(param *ConnParam, both, credits bool) (err error) {
	var o offer
	if both {
		o.flags |= flagBoth
	}
	if credits {
		o.flags |= flagCredits
	}
	remote := verbs.AccessRemoteRead
	if o.flags != 0 {
		remote |= verbs.AccessRemoteWrite
	} else if r, ok := verbs.Ability[verbs.ProviderQPEmptyReads](e.qp.Provider()); !ok || r.AnswersEmptyReads() {
		return nil
	}
	if err := e.makeWords(remote); err != nil {
		return err
	}
	if both {
		if e.words.told, err = e.words.mr.Word(toldWord); err != nil {
			return err
		}
	}
	if credits {
		if e.credit.more, err = e.words.mr.Word(creditWord); err != nil {
			return err
		}
		o.recvs = e.offerCredit()
	}
	o.addr, o.rkey = e.words.mr.Addr(), e.words.mr.RKey()
	param.PrivateData = o.append(bytes.Clone(param.PrivateData))
	return nil
}

// ownPart adds to an error about the length of the private data how much of them is the endpoint's.
func (e *Endpoint) ownPart(err error) error {
	var limit *verbs.LimitError
	if e.words.mr == nil || !errors.As(err, &limit) || limit.Name != "private data" {
		return err
	}
	return fmt.Errorf("%w (%d bytes are the endpoint's; EndpointConfig.NoCredits)", err, FenceLen)
}

// takeWords looks for the peer's offer at the end of its private data. It is called once, when the
// connection is established.
func (e *Endpoint) takeWords() error {
	e.private = e.id.PrivateData()
	if e.words.told != nil {
		if err := offersBoth(e.private); err != nil {
			return err
		}
	}
	at, o, ok := findOffer(e.private)
	if !ok {
		return nil
	}
	if e.words.mr == nil {
		if err := e.makeWords(0); err != nil {
			return err
		}
	}
	e.private = e.private[:at]
	e.words.peer = verbs.Remote{Addr: o.addr, Length: peersLen, RKey: o.rkey}
	if e.credit.more != nil && o.flags&flagCredits != 0 {
		e.takeCredit(o.recvs)
	}
	return nil
}

// own returns a word of this side.
func (w *words) own(off uint64) verbs.SGE {
	return verbs.SGE{Addr: w.mr.Addr() + off, Length: 8, LKey: w.mr.LKey()}
}

// of returns a word of the peer.
func (w *words) of(off uint64) verbs.Remote {
	return verbs.Remote{Addr: w.peer.Addr + off, Length: 8, RKey: w.peer.RKey}
}

// fence returns the Read of Shutdown.
func (w *words) fence() verbs.SendWR {
	if w.peer.Length == 0 {
		return verbs.Read(verbs.Remote{RKey: 1}) // some hardware refuses the key 0
	}
	return verbs.Read(w.of(fenceWord), w.own(sinkWord))
}

// tell returns the Write of Shutdown.
func (w *words) tell() verbs.SendWR { return verbs.Write(w.of(toldWord), w.own(oneWord)) }

// grant returns the Write of the credit word (endpoint_credit.go).
func (w *words) grant() verbs.SendWR { return verbs.Write(w.of(creditWord), w.own(postedWord)) }

// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"bytes"
	"fmt"
	"sync/atomic"

	"github.com/goverbs/goverbs/verbs"
)

// A fence is the Read with which Shutdown confirms that everything before it has arrived. Any device answers a Read of 0 bytes, for
// which no key is needed, but kernel siw does so wrongly while it sends. An endpoint on such a device therefore has a region
// for the fence of its peer, and appends fenceMark and the verbs.Remote of the region to its private data. An endpoint with
// EndpointConfig.ShutdownBoth does so on every device. Its region has a second word, into which the peer writes (endpoint_both.go).
type fence struct {
	from verbs.Remote // the peer's region, with a Length of 0 if the Read is of 0 bytes
	into *verbs.MR    // bothLen bytes: what is read, and the word that is written; nil without a region of the peer
	done verbs.Remote // the word of the peer's region for that, with a Length of 0 if there is none
	told *atomic.Uint64
}

const (
	fenceLen = 8  // the size of a region that the peer reads
	bothLen  = 16 // the size of a region of ShutdownBoth: 8 bytes that the peer reads, 8 that it writes
)

// fenceMark is what no private data have there by chance.
var fenceMark = [8]byte{0xf3, 0x9e, 0x1d, 0x5a, 0xc4, 0x07, 0x6b, 0x82}

// FenceLen is the number of bytes that an Endpoint on a device of kernel siw, and one with EndpointConfig.ShutdownBoth on any device,
// appends to its private data; see Endpoint.Shutdown. They count towards the maximum of ConnParam.PrivateData.
// [Endpoint.PrivateData] leaves them out, [Request.PrivateData] and [ID.PrivateData] do not.
const FenceLen = len(fenceMark) + verbs.RemoteLen

// read returns the request.
func (f *fence) read() verbs.SendWR {
	if f.into == nil {
		return verbs.Read(verbs.Remote{RKey: 1}) // some hardware refuses the key 0
	}
	return verbs.Read(f.from, verbs.SGE{Addr: f.into.Addr(), Length: fenceLen, LKey: f.into.LKey()})
}

// tell returns the request that writes the peer's word.
func (f *fence) tell() verbs.SendWR {
	return verbs.Write(f.done, verbs.SGE{Addr: f.into.Addr() + fenceLen, Length: bothLen - fenceLen, LKey: f.into.LKey()})
}

// offerFence makes the region for the peer's fence, if this device needs one or both is set, and appends it to the private data.
func (e *Endpoint) offerFence(param *ConnParam, both bool) error {
	size, access := fenceLen, verbs.AccessLocalWrite|verbs.AccessRemoteRead
	if both {
		size, access = bothLen, access|verbs.AccessRemoteWrite
	} else if r, ok := verbs.Ability[verbs.ProviderQPEmptyReads](e.qp.Provider()); !ok || r.AnswersEmptyReads() {
		return nil
	}
	mr, err := e.pd.AllocMR(size, access)
	if err != nil {
		return err
	}
	e.undo = append(e.undo, mr.Close)
	if both {
		if e.fence.told, err = mr.Word(fenceLen); err != nil {
			return err
		}
	}
	param.PrivateData = mr.Remote().Append(append(bytes.Clone(param.PrivateData), fenceMark[:]...))
	return nil
}

// findFence returns the region that stands at the end of the private data of a peer, and where that begins. InfiniBand pads private
// data with zeros.
func findFence(private []byte) (at int, from verbs.Remote, ok bool) {
	at = bytes.LastIndex(private, fenceMark[:])
	if at < 0 || len(private)-at < FenceLen || len(bytes.Trim(private[at+FenceLen:], "\x00")) > 0 {
		return 0, from, false
	}
	from, err := verbs.ParseRemote(private[at+len(fenceMark):])
	return at, from, err == nil && (from.Length == fenceLen || from.Length == bothLen)
}

// offersBoth returns an error if the private data are not those of an endpoint with ShutdownBoth.
func offersBoth(private []byte) error {
	if _, from, ok := findFence(private); !ok || from.Length != bothLen {
		return fmt.Errorf("%w: the peer is no Endpoint with ShutdownBoth", verbs.ErrNotSupported)
	}
	return nil
}

// takeFence looks for the region of the peer at the end of its private data. It is called once, when the connection is
// established.
func (e *Endpoint) takeFence() error {
	e.private = e.id.PrivateData()
	if e.fence.told != nil {
		if err := offersBoth(e.private); err != nil {
			return err
		}
	}
	at, from, ok := findFence(e.private)
	if !ok {
		return nil
	}
	mr, err := e.pd.AllocMR(bothLen, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	e.undo = append(e.undo, mr.Close)
	e.private, e.fence.into = e.private[:at], mr
	if e.fence.from, err = from.Slice(0, fenceLen); err != nil || e.fence.told == nil {
		return err
	}
	mr.Bytes()[fenceLen] = 1 // what the peer's word becomes need only differ from 0
	e.fence.done, err = from.Slice(fenceLen, bothLen-fenceLen)
	return err
}

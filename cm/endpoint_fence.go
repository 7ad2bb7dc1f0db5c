// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"bytes"

	"github.com/goverbs/goverbs/verbs"
)

// A fence is the Read with which Shutdown confirms that everything before it has arrived. Any device answers a Read of 0 bytes, for
// which no key is needed, but kernel siw does so wrongly while it sends. An endpoint on such a device therefore has a region
// for the fence of its peer, and appends fenceMark and the verbs.Remote of the region to its private data.
type fence struct {
	from verbs.Remote // the peer's region, with a Length of 0 if the Read is of 0 bytes
	into *verbs.MR    // then nil
}

// fenceLen is the size of the region.
const fenceLen = 8

// fenceMark is what no private data have there by chance.
var fenceMark = [8]byte{0xf3, 0x9e, 0x1d, 0x5a, 0xc4, 0x07, 0x6b, 0x82}

// FenceLen is the number of bytes that an Endpoint on a device of kernel siw appends to its private data; see Endpoint.Shutdown.
// They count towards the maximum of ConnParam.PrivateData. [Endpoint.PrivateData] leaves them out, [Request.PrivateData] and
// [ID.PrivateData] do not.
const FenceLen = len(fenceMark) + verbs.RemoteLen

// read returns the request.
func (f *fence) read() verbs.SendWR {
	if f.into == nil {
		return verbs.Read(verbs.Remote{RKey: 1}) // some hardware refuses the key 0
	}
	return verbs.Read(f.from, verbs.SGE{Addr: f.into.Addr(), Length: fenceLen, LKey: f.into.LKey()})
}

// offerFence makes the region for the peer's fence if this device needs one, and appends it to the private data.
func (e *Endpoint) offerFence(param *ConnParam) error {
	r, ok := verbs.Ability[verbs.ProviderQPEmptyReads](e.qp.Provider())
	if !ok || r.AnswersEmptyReads() {
		return nil
	}
	mr, err := e.pd.AllocMR(fenceLen, verbs.AccessLocalWrite|verbs.AccessRemoteRead)
	if err != nil {
		return err
	}
	e.undo = append(e.undo, mr.Close)
	param.PrivateData = mr.Remote().Append(append(bytes.Clone(param.PrivateData), fenceMark[:]...))
	return nil
}

// takeFence looks for the region of the peer at the end of its private data. It is called once, when the connection is
// established.
func (e *Endpoint) takeFence() error {
	e.private = e.id.PrivateData()
	at := len(e.private) - FenceLen
	if at < 0 || !bytes.HasPrefix(e.private[at:], fenceMark[:]) {
		return nil
	}
	from, err := verbs.ParseRemote(e.private[at+len(fenceMark):])
	if err != nil || from.Length != fenceLen {
		return nil // other data
	}
	mr, err := e.pd.AllocMR(fenceLen, verbs.AccessLocalWrite)
	if err != nil {
		return err
	}
	e.undo = append(e.undo, mr.Close)
	e.fence, e.private = fence{from, mr}, e.private[:at]
	return nil
}

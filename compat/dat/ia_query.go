// SPDX-License-Identifier: BSD-3-Clause

package dat

import (
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/compat/ibcompat"
	"github.com/goverbs/goverbs/ext"
	"github.com/goverbs/goverbs/verbs"
)

// IAAttr are the attributes of an IA (DAT_IA_ATTR). The limits are maxima; less may be available.
type IAAttr struct {
	AdapterName           string     // of the device, for example "ib:usiw0"
	Addr                  netip.Addr // as passed to Open; zero = all addresses of the device
	MaxEPs                int
	MaxDTOPerEP           int // outstanding in each direction
	MaxRDMAReadPerEPIn    int // outstanding Reads and atomics of the peer
	MaxRDMAReadPerEPOut   int // outstanding Reads and atomics of this side
	MaxEVDs               int
	MaxEVDQLen            int
	MaxIOVSegmentsPerDTO  int
	MaxIOVSegmentsPerRead int
	MaxLMRs               int
	MaxLMRBlockSize       uint64 // bytes
	MaxPZs                int
	MaxMessageSize        uint32 // bytes
	MaxRDMASize           uint32 // bytes
	ZeroBasedSupported    bool
}

// ProviderAttr are the attributes of the provider (DAT_PROVIDER_ATTR).
type ProviderAttr struct {
	ProviderName             string
	CompletionFlagsSupported CompletionFlags
	IsThreadSafe             bool
	MaxPrivateDataSize       int  // bytes
	PSPCreatesEP             bool // false: PSPProvider is not supported
	SRQSupported             bool
	LMRSyncRequired          bool // false: the sync calls are not required
	OptimalBufferAlignment   int  // bytes
	// Operations lists for each extended operation whether and how the device performs it. Over
	// iWARP, how it is performed also depends on the peer: EP.Support reports it for a connection.
	Operations []OperationAttr
}

// OperationAttr describes whether and how an operation is performed. DAPL has a named attribute for
// three of them, which is always TRUE.
type OperationAttr struct {
	Name    string // DAPL's name, for example "DAT_IB_FETCH_AND_ADD"; names not in DAPL begin with "DAT_"
	Op      verbs.Op
	Support ext.Support // ext.None: posting it fails with ModelNotSupported
}

// extended lists the operations of the extensions.
var extended = []OperationAttr{
	{Name: "DAT_IB_FETCH_AND_ADD", Op: verbs.OpFetchAdd},
	{Name: "DAT_IB_CMP_AND_SWAP", Op: verbs.OpCmpSwap},
	{Name: "DAT_MASKED_FETCH_AND_ADD", Op: verbs.OpMaskedFetchAdd},
	{Name: "DAT_MASKED_CMP_AND_SWAP", Op: verbs.OpMaskedCmpSwap},
	{Name: "DAT_SEND_IMMED", Op: verbs.OpSendImm},
	{Name: "DAT_IB_IMMED_DATA", Op: verbs.OpWriteImm},
}

// Query returns the asynchronous EVD, which belongs to the IA, and the attributes (dat_ia_query).
func (ia *IA) Query() (async *EVD, attr IAAttr, provider ProviderAttr, err error) {
	const call = "IA.Query"
	if err := ia.enter(call); err != nil {
		return nil, attr, provider, err
	}
	defer ia.node.Exit()
	d, err := ia.ctx.QueryDevice()
	if err != nil {
		return nil, attr, provider, below(call, NoSubtype, err)
	}
	port, err := ia.ctx.QueryPort(1)
	if err != nil {
		return nil, attr, provider, below(call, NoSubtype, err)
	}
	attr = IAAttr{AdapterName: ia.dev.Name(), Addr: ia.addr, MaxEPs: d.MaxQP, MaxDTOPerEP: d.MaxQPWR - 1,
		MaxRDMAReadPerEPIn: d.MaxQPRdAtom, MaxRDMAReadPerEPOut: d.MaxQPInitRdAtom, MaxEVDs: d.MaxCQ,
		MaxEVDQLen: d.MaxCQE - markerRoom, MaxIOVSegmentsPerDTO: d.MaxSGE,
		MaxIOVSegmentsPerRead: d.MaxSGERd, MaxLMRs: d.MaxMR, MaxLMRBlockSize: d.MaxMRSize, MaxPZs: d.MaxPD,
		MaxMessageSize: port.MaxMsgSz, MaxRDMASize: port.MaxMsgSz, ZeroBasedSupported: ia.zeroBased()}
	provider = ProviderAttr{ProviderName: "goverbs", CompletionFlagsSupported: allCompletion | CompletionEVDThreshold,
		IsThreadSafe: true, MaxPrivateDataSize: MaxPrivateData, OptimalBufferAlignment: optimalAlignment}
	for _, op := range extended {
		op.Support = ext.SupportOf(ia.ctx, op.Op)
		provider.Operations = append(provider.Operations, op)
	}
	return ia.async, attr, provider, nil
}

// zeroBased finds out by trying.
func (ia *IA) zeroBased() bool {
	pd, err := ia.ctx.AllocPD()
	if err != nil {
		return false
	}
	mr, err := pd.AllocMR(1, verbs.AccessZeroBased)
	return errors.Join(err, mr.Close(), pd.Close()) == nil
}

// optimalAlignment is the size of a cache line.
const optimalAlignment = 64

// Support returns how the EP performs an operation, and why, like ibcompat.Support: on a connection
// over iWARP it depends on the peer.
func (ep *EP) Support(op verbs.Op) (ext.Support, string) { return ibcompat.Support(ep.qp, op) }

// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

// The devices, as numbers that the functions here take.
const (
	Fake0 = 0 // RoCE
	Fake1 = 1 // iWARP, like the siw of the kernel
)

// Attr are attributes of a device, named as in struct ibv_device_attr and ibv_device_attr_ex.
type Attr struct {
	MaxMRSize, PageSizeCap, CapFlags     uint64
	MaxQP, MaxQPWR, MaxSGE, MaxSGERd     int
	MaxCQ, MaxCQE, MaxMR, MaxPD, MaxMW   int
	MaxQPRdAtom, MaxQPInitRdAtom         int
	AtomicCap                            int
	MaxSRQ, MaxSRQWR, MaxSRQSGE, MaxAH   int
	PhysPortCnt, NodeType, TransportType int
	VendorID, VendorPartID, HWVer        uint32 // fake1 has those of the kernel's siw
	SysImageGUID                         uint64 // host order
	MaxResRdAtom, MaxPKeys               int
	LocalCAAckDelay                      uint8
	ODPGeneral                           uint64
	ODPRC, ODPUC, ODPUD                  uint32

	NumCompVectors                                       int // of contexts that are opened from now on
	MaxEERdAtom, MaxEEInitRdAtom, MaxEE, MaxRDD          int
	MaxRawIPv6QP, MaxRawEthyQP, MaxFMR, MaxMapPerFMR     int
	MaxMcastGrp, MaxMcastQPAttach, MaxTotalMcastQPAttach int
}

// DeviceAttr returns the attributes of a device.
func DeviceAttr(dev int) Attr { return cAttr(dev) }

// SetDeviceAttr sets them, until Reset.
func SetDeviceAttr(dev int, a Attr) { cSetAttr(dev, a) }

// SetExtended sets the extended attributes of a device to first, first+1, ..., in the order of
// struct ibv_device_attr_ex from completion_timestamp_mask on, until Reset. Each number is cut to
// the size of its attribute.
func SetExtended(dev int, first uint64) { cSetExtended(dev, first) }

// Port are attributes of a port, named as in struct ibv_port_attr.
type Port struct {
	State, MaxMTU, ActiveMTU                            int
	GIDTableLen, PKeyTableLen                           int
	CapFlags, MaxMsgSize                                uint32
	LID, SMLID                                          uint16
	LMC, ActiveWidth, ActiveSpeed, PhysState, LinkLayer uint8

	CapFlags2                                           uint16
	BadPKeyCntr, QKeyViolCntr                           uint32
	MaxVLNum, SMSL, SubnetTimeout, InitTypeReply, Flags uint8
}

// PortAttr returns the attributes of a port, 1 or 2; the second is there if PhysPortCnt says so.
func PortAttr(dev, port int) Port { return cPort(dev, port) }

// SetPortAttr sets them, until Reset.
func SetPortAttr(dev, port int, p Port) { cSetPort(dev, port, p) }

// GID is an entry of a port's GID table. Type is an ibv_gid_type: 0 InfiniBand or iWARP, 1 RoCE v1,
// 2 RoCE v2.
type GID struct {
	GID                        [16]byte
	Port, Index, Type, IfIndex uint32
}

// GIDs returns the GID table of a device.
func GIDs(dev int) []GID { return cGIDs(dev) }

// SetGIDs replaces it, at most 16 entries, until Reset.
func SetGIDs(dev int, gids []GID) { cSetGIDs(dev, gids) }

// SetPKeys replaces a device's table of partition keys, at most 64, until Reset. They are 0xffff
// and no others otherwise.
func SetPKeys(dev int, keys ...uint16) { cSetPKeys(dev, keys) }

// SetHidden takes a device out of the list, as when it is unplugged.
func SetHidden(dev int, hidden bool) { cSetHidden(dev, hidden) }

// InjectAsync queues an asynchronous event (ibv_event_type) and returns on how many contexts. For
// an event of a QP, id is its number; for one of a CQ or SRQ, which of that kind since the process
// began (1 is the first); for one of a port or the device, or of a kind that has no name, the port,
// and all contexts of dev get it.
func InjectAsync(dev int, event, id uint32) int { return cInjectAsync(dev, event, id) }

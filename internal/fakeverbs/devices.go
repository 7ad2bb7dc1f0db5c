// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package fakeverbs

// The numbers of the devices.
const (
	Fake0 = 0 // RoCE
	Fake1 = 1 // iWARP, like the kernel's siw
)

// Attr holds the attributes of a device, named as in struct ibv_device_attr and ibv_device_attr_ex.
type Attr struct {
	MaxMRSize, PageSizeCap, CapFlags     uint64
	MaxQP, MaxQPWR, MaxSGE, MaxSGERd     int
	MaxCQ, MaxCQE, MaxMR, MaxPD, MaxMW   int
	MaxQPRdAtom, MaxQPInitRdAtom         int
	AtomicCap                            int
	MaxSRQ, MaxSRQWR, MaxSRQSGE, MaxAH   int
	PhysPortCnt, NodeType, TransportType int
	VendorID, VendorPartID, HWVer        uint32 // fake1 has those of the kernel's siw
	SysImageGUID                         uint64 // host byte order
	MaxResRdAtom, MaxPKeys               int
	LocalCAAckDelay                      uint8
	ODPGeneral                           uint64
	ODPRC, ODPUC, ODPUD                  uint32

	NumCompVectors                                       int // of contexts opened from now on
	MaxEERdAtom, MaxEEInitRdAtom, MaxEE, MaxRDD          int
	MaxRawIPv6QP, MaxRawEthyQP, MaxFMR, MaxMapPerFMR     int
	MaxMcastGrp, MaxMcastQPAttach, MaxTotalMcastQPAttach int
}

// DeviceAttr returns the attributes of a device.
func DeviceAttr(dev int) Attr { return cAttr(dev) }

// SetDeviceAttr sets the attributes of a device, until Reset.
func SetDeviceAttr(dev int, a Attr) { cSetAttr(dev, a) }

// SetExtended sets the extended attributes of a device to first, first+1, ..., in the order of
// struct ibv_device_attr_ex from completion_timestamp_mask on, until Reset. Each number is
// truncated to the size of its attribute.
func SetExtended(dev int, first uint64) { cSetExtended(dev, first) }

// Port holds the attributes of a port, named as in struct ibv_port_attr.
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

// PortAttr returns the attributes of port 1 or 2. PhysPortCnt determines whether port 2 exists.
func PortAttr(dev, port int) Port { return cPort(dev, port) }

// SetPortAttr sets the attributes of a port, until Reset.
func SetPortAttr(dev, port int, p Port) { cSetPort(dev, port, p) }

// GID is an entry of a port's GID table. Type is an ibv_gid_type: 0 InfiniBand or iWARP, 1 RoCE v1,
// 2 RoCE v2.
type GID struct {
	GID                        [16]byte
	Port, Index, Type, IfIndex uint32
}

// GIDs returns the GID table of a device.
func GIDs(dev int) []GID { return cGIDs(dev) }

// SetGIDs replaces the GID table of a device, at most 16 entries, until Reset.
func SetGIDs(dev int, gids []GID) { cSetGIDs(dev, gids) }

// SetPKeys replaces the partition key table of a device, at most 64 keys, until Reset. By default
// it holds only 0xffff.
func SetPKeys(dev int, keys ...uint16) { cSetPKeys(dev, keys) }

// SetHidden removes a device from the device list, as if it were unplugged.
func SetHidden(dev int, hidden bool) { cSetHidden(dev, hidden) }

// InjectAsync queues an asynchronous event (ibv_event_type) and returns the number of contexts that
// get it. id is the QP number for an event of a QP, and the creation number, counted from 1 since
// the process started, for one of a CQ or SRQ. For an event of a port or the device, or of an
// unknown type, it is the port, and all contexts of dev get the event.
func InjectAsync(dev int, event, id uint32) int { return cInjectAsync(dev, event, id) }

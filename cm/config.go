// SPDX-License-Identifier: BSD-3-Clause

package cm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/verbs"
)

// DefaultBacklog is how many connection requests a listener keeps for Accept when none is configured.
const DefaultBacklog = 128

// Auto, as Config.Device, lets Resolve choose: the kernel's RDMA device that owns the route to the address, else the
// first registered user-space NIC. A listener listens on the first registered NIC.
var Auto = new(verbs.Device)

// Config says on which device connections are made.
type Config struct {
	// Device is the device, or Auto. Without one, and without a Context, the call fails with verbs.ErrNoDevice.
	Device *verbs.Device
	// Context is an open context of the device for the objects of the connection (nil = the device's shared one).
	Context *verbs.Context
	// Source is the local address of an outgoing connection (zero = chosen by the route; port 0 = any).
	Source netip.AddrPort
	// Backlog is how many requests a listener keeps that Accept has not taken (0 = DefaultBacklog). Further ones are
	// refused.
	Backlog int
}

// context returns the context that cfg chooses for an address, for the error texts.
func (cfg Config) context(op, address string) (*verbs.Context, error) {
	if cfg.Context != nil {
		if cfg.Device != nil && cfg.Device != Auto && cfg.Device != cfg.Context.Device() {
			return nil, opError(op, address, fmt.Errorf("%w: Config.Context is of another device than Config.Device", verbs.ErrForeign))
		}
		return cfg.Context, nil
	}
	dev := cfg.Device
	if dev == Auto {
		devices, err := verbs.Devices()
		if err != nil {
			return nil, opError(op, address, err)
		}
		dev = nil
		names := ""
		for _, d := range devices {
			if _, ok := d.Provider().(Provider); ok {
				dev = d
				break
			}
			names += " " + d.Name()
		}
		if dev == nil {
			return nil, opError(op, address, fmt.Errorf("%w can reach it (looked at:%s; siw.Register adds one)", verbs.ErrNoDevice, orNone(names)))
		}
	}
	if dev == nil {
		return nil, opError(op, address, fmt.Errorf("%w: Config names neither Device nor Context (cm.Auto chooses one)", verbs.ErrNoDevice))
	}
	ctx, err := dev.SharedContext()
	if err != nil {
		return nil, opError(op, address, err)
	}
	return ctx, nil
}

func orNone(s string) string {
	if s == "" {
		return " none"
	}
	return s
}

// provider returns the connection manager of a context's device.
func provider(op, address string, ctx *verbs.Context) (Provider, error) {
	p, ok := ctx.Device().Provider().(Provider)
	if !ok {
		return nil, opError(op, address, fmt.Errorf("%w: device %s has no connection manager", verbs.ErrNotSupported, ctx.Device().Name()))
	}
	return p, nil
}

// ConnParam describes one side of a connection (struct rdma_conn_param).
type ConnParam struct {
	// PrivateData goes to the peer with the request, the acceptance or the rejection. How much a device carries is its
	// own matter: 508 octets on the user-space siw, 252 on the kernel's, 56 on InfiniBand.
	PrivateData []byte
	// InitiatorDepth is how many Reads and atomics this side may have in progress (ORD), ResponderResources how many of the
	// peer's it answers at a time (IRD). 0 = as many as the device can, None = none. The peer's values lower them:
	// ID.Depths tells what was agreed on.
	InitiatorDepth, ResponderResources int
	// RetryCount and RNRRetryCount are for InfiniBand; iWARP has TCP for that.
	RetryCount, RNRRetryCount uint8
}

// None as a depth means that there are no Reads and atomics in that direction.
const None = -1

// Depth returns the number that a depth of ConnParam stands for on a device that can do at most most. It fails for
// values that are out of range, naming the field.
func Depth(field string, v, most int) (int, error) {
	switch {
	case v == None:
		return 0, nil
	case v == 0:
		return most, nil
	case v < 0:
		return 0, fmt.Errorf("%w: %s %d", verbs.ErrInvalid, field, v)
	case v > most:
		return 0, &verbs.LimitError{Name: field, Limit: uint64(most), Value: uint64(v)}
	}
	return v, nil
}

// Event names what ended an attempt to connect or a connection, with the numbers of enum rdma_cm_event_type.
type Event uint8

const (
	EventAddrError    Event = 1  // RDMA_CM_EVENT_ADDR_ERROR: the address cannot be resolved
	EventRouteError   Event = 3  // RDMA_CM_EVENT_ROUTE_ERROR
	EventConnectError Event = 6  // RDMA_CM_EVENT_CONNECT_ERROR: the set-up failed
	EventUnreachable  Event = 7  // RDMA_CM_EVENT_UNREACHABLE: no answer
	EventRejected     Event = 8  // RDMA_CM_EVENT_REJECTED: the peer said no
	EventEstablished  Event = 9  // RDMA_CM_EVENT_ESTABLISHED
	EventDisconnected Event = 10 // RDMA_CM_EVENT_DISCONNECTED
)

// String returns the C name.
func (e Event) String() string {
	switch e {
	case EventAddrError:
		return "RDMA_CM_EVENT_ADDR_ERROR"
	case EventRouteError:
		return "RDMA_CM_EVENT_ROUTE_ERROR"
	case EventConnectError:
		return "RDMA_CM_EVENT_CONNECT_ERROR"
	case EventUnreachable:
		return "RDMA_CM_EVENT_UNREACHABLE"
	case EventRejected:
		return "RDMA_CM_EVENT_REJECTED"
	case EventEstablished:
		return "RDMA_CM_EVENT_ESTABLISHED"
	case EventDisconnected:
		return "RDMA_CM_EVENT_DISCONNECTED"
	}
	return fmt.Sprintf("Event(%d)", uint8(e))
}

// The causes that errors of this package wrap, besides those of package verbs.
var (
	// ErrRejected: the peer refused the connection; see [RejectedError] for its private data.
	ErrRejected = errors.New("connection rejected by the peer")
	// ErrProtocol: the peer does not speak the protocol, or not as it must.
	ErrProtocol = errors.New("protocol error during connection set-up")
	// ErrSetupTimeout: the peer did not answer in time.
	ErrSetupTimeout = errors.New("connection set-up timed out")
)

// RejectedError is the refusal of a peer. It Is [ErrRejected].
type RejectedError struct {
	PrivateData []byte // what the peer sent with it
	IRD, ORD    int    // the depths that the peer asks for, -1 if it said nothing
}

// Error returns the text of ErrRejected and the length of the private data.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("%v (%d octets of private data)", ErrRejected, len(e.PrivateData))
}

// Is reports whether target is ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// OpError is the error of a call: which one, with which address, and why. It is a net.Error.
type OpError struct {
	Op   string // the call, for example "Connect"
	Addr string // the address as given or as resolved
	Err  error
}

// Error returns "cm: OP ADDRESS: CAUSE".
func (e *OpError) Error() string {
	if e.Addr == "" {
		return "cm: " + e.Op + ": " + e.Err.Error()
	}
	return "cm: " + e.Op + " " + e.Addr + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *OpError) Unwrap() error { return e.Err }

// Timeout reports whether the cause is a time limit.
func (e *OpError) Timeout() bool {
	if errors.Is(e.Err, ErrSetupTimeout) {
		return true
	}
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// Temporary is false.
func (e *OpError) Temporary() bool { return false }

var _ net.Error = (*OpError)(nil)

func opError(op, addr string, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Addr: addr, Err: err}
}

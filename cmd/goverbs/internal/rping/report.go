// SPDX-License-Identifier: BSD-3-Clause

package rping

import (
	"encoding/json"
	"fmt"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/devices"
)

// report is what one end of a connection did. Its JSON form is a line of rping --json.
type report struct {
	Role string `json:"role"` // client or server
	// the connection's; before it exists, the chosen one
	Device    string       `json:"device"`
	Local     string       `json:"local,omitempty"`         // the addresses, once known
	Peer      string       `json:"peer,omitempty"`          //
	Size      int          `json:"size"`                    // bytes per ping
	Pings     int          `json:"pings"`                   // completed, and verified with -V
	RoundTrip *roundTripNS `json:"round_trip_ns,omitempty"` // client: how long they took, if any
	OK        bool         `json:"ok"`
	Error     string       `json:"error,omitempty"`

	trips *roundTrips // nil on a server
}

func (r *run) newReport() *report {
	p := &report{Role: r.role(), Device: devices.Name(r.dev), Size: r.Size}
	if !r.Server {
		p.trips = new(roundTrips)
	}
	return p
}

// conclude prints what an end did and how it ended: a line of JSON, or the statistics of a client.
func (r *run) conclude(p *report, ended error) error {
	timed := p.trips != nil && p.trips.n > 0
	if !r.JSON {
		if !timed {
			return nil
		}
		return r.print("%v", p.trips)
	}
	p.OK = ended == nil
	if ended != nil {
		p.Error = ended.Error()
	}
	if timed {
		p.RoundTrip = p.trips.json()
	}
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = fmt.Fprintf(r.Stdout, "%s\n", line)
	return err
}

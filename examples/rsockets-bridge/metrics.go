// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"expvar"
	"net"
	"net/http"
	"time"
)

// metrics counts events since the bridge started; active is the current number. All methods may be
// called concurrently.
type metrics struct {
	accepted    expvar.Int // connections, including refused ones
	active      expvar.Int // open connections, including those still connecting to the target
	refused     expvar.Int // connections over --max-conns
	unreachable expvar.Int // connections whose target could not be reached
	aborted     expvar.Int // connections ended by an error of one side, --idle-timeout or --drain-timeout
	idle        expvar.Int // those of them ended by --idle-timeout
	toTarget    expvar.Int // bytes read from clients
	toClient    expvar.Int // bytes read from the target
}

// vars returns the metrics under their names in JSON.
func (m *metrics) vars() *expvar.Map {
	vars := new(expvar.Map)
	vars.Set("accepted", &m.accepted)
	vars.Set("active", &m.active)
	vars.Set("refused", &m.refused)
	vars.Set("unreachable", &m.unreachable)
	vars.Set("aborted", &m.aborted)
	vars.Set("idle", &m.idle)
	vars.Set("bytes_to_target", &m.toTarget)
	vars.Set("bytes_to_client", &m.toClient)
	return vars
}

// serve publishes the metrics as "bridge", next to expvar's own variables, until the process exits.
// It returns the address of the HTTP server.
func (m *metrics) serve(address string) (net.Addr, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	expvar.Publish("bridge", m.vars())
	mux := http.NewServeMux()
	mux.Handle("GET /debug/vars", expvar.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(ln)
	return ln.Addr(), nil
}

// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// URL schemes.
const (
	schemeTCP     = "tcp"
	schemeUnix    = "unix"
	schemeRSocket = "rsocket"
)

// maxPath is the maximum length in bytes of a unix socket's path, without the terminating zero
// (unix(7), sun_path).
const maxPath = 107

// endpoint is where the bridge listens, or what it connects to.
type endpoint struct {
	scheme  string
	address string // HOST:PORT, or the path of a unix socket
}

// parseEndpoint parses a URL.
func parseEndpoint(text string) (endpoint, error) {
	scheme, address, found := strings.Cut(text, "://")
	if !found {
		return endpoint{}, errors.New("not tcp://HOST:PORT, unix:///PATH or rsocket://HOST:PORT")
	}
	switch scheme {
	case schemeTCP, schemeRSocket:
		if err := checkHostPort(address); err != nil {
			return endpoint{}, err
		}
	case schemeUnix:
		if !strings.HasPrefix(address, "/") {
			return endpoint{}, fmt.Errorf("the path %q does not begin with /", address)
		}
		if len(address) > maxPath {
			return endpoint{}, fmt.Errorf("the path has %d bytes, more than %d", len(address), maxPath)
		}
	default:
		return endpoint{}, fmt.Errorf("unknown scheme %q (there are tcp, unix, rsocket)", scheme)
	}
	return endpoint{scheme, address}, nil
}

// checkHostPort reports what is wrong with an address HOST:PORT, whose host may be empty.
func checkHostPort(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port: a number from 0 to 65535", port)
	}
	return nil
}

// complete reports what is missing for connecting to an endpoint.
func (e endpoint) complete() error {
	if e.scheme == schemeUnix {
		return nil
	}
	host, port, err := net.SplitHostPort(e.address)
	switch {
	case err != nil:
		return err
	case host == "":
		return errors.New("no host to connect to")
	case strings.Trim(port, "0") == "":
		return errors.New("no port to connect to")
	}
	return nil
}

// String returns the URL.
func (e endpoint) String() string { return e.scheme + "://" + e.address }

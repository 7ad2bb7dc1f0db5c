// SPDX-License-Identifier: BSD-3-Clause

// Command rsockets-bridge carries byte streams between sockets and rsockets, which are streams over
// RDMA. Two of them let programs that know TCP alone use RDMA between two hosts:
//
//	rsockets-bridge --listen tcp://127.0.0.1:8080 --dial rsocket://server:7471      # beside the client
//	rsockets-bridge --listen rsocket://server:7471 --dial tcp://127.0.0.1:80        # beside the server
//
// One of them is enough if the other program uses the rsockets of librdmacm, or package rsocket.
// Each side is a URL:
//
//	tcp://HOST:PORT
//	unix:///PATH
//	rsocket://HOST:PORT
//
// For each connection that it accepts the bridge makes one to the target, and carries over bytes,
// the end of the data of each direction, and aborts. The first SIGTERM or SIGINT stops listening
// and waits for open connections; the second one ends the program. The exit status is 0 after the
// first signal, 1 if something failed or at the second signal, 2 for wrong usage.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

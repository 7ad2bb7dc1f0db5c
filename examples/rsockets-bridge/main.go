// SPDX-License-Identifier: BSD-3-Clause

// Command rsockets-bridge carries byte streams between sockets and rsockets, which are streams over
// RDMA. Two bridges let programs that support only TCP use RDMA between two hosts:
//
//	# beside the client
//	rsockets-bridge --listen tcp://127.0.0.1:8080 --dial rsocket://server:7471
//	# beside the server
//	rsockets-bridge --listen rsocket://server:7471 --dial tcp://127.0.0.1:80
//
// One is enough if the other program uses librdmacm's rsockets or package rsocket. Each side is a
// URL:
//
//	tcp://HOST:PORT
//	unix:///PATH
//	rsocket://HOST:PORT
//
// For each connection that it accepts, the bridge opens one to the target and forwards bytes, the
// end of data in each direction, and aborts. The first SIGTERM or SIGINT stops listening and waits
// for open connections; the second exits immediately. The exit status is 0 after the first signal,
// 1 if something failed or at the second signal, and 2 for a usage error.
package main

import "os"

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

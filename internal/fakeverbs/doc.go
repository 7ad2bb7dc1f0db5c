// SPDX-License-Identifier: BSD-3-Clause

// Package fakeverbs is libibverbs and librdmacm without a device. It defines in C the functions of
// both libraries that packages verbs and cm look up, and provides them in place of the real ones. A
// test that imports this package therefore runs the providers' own code down to the library call,
// on machines without any RDMA. [Lookups] lists the functions that were looked up; a test of each
// provider requires that this package has them all.
//
// There are two devices. fake0 resembles a RoCE adapter: RC, UC and UD QPs, all operations, memory
// windows, address handles, on-demand paging and six GIDs. Its addresses are 192.0.2.1/24 and
// 2001:db8::1/64, and it serves the loopback addresses. fake1, with addresses 198.51.100.1/24 and
// 2001:db8:1::1/64, resembles the siw of the Linux kernel: only RC QPs, which only the connection
// manager brings up and whose state a query does not return; Writes, Reads and Sends; negative
// results of posts; siw's vendor ID. A test that needs another driver sets VendorID with
// [SetDeviceAttr].
//
// A posted request is recorded and waits until the test completes it. Under [AutoComplete] it
// completes immediately, under [Loopback] it is executed between QPs of the process. Completion
// channels, asynchronous events and event channels have descriptors that are readable while an
// event is queued. Destroying an object drops its unread events and then waits until those already
// read are acknowledged, as the libraries do. Ids of the connection manager connect within the
// process.
//
// A program error is a fault, which [Faults] returns: a call on a destroyed object, an object
// destroyed before its users, a wait for an acknowledgement that never comes, a request that makes
// the kernel's siw do something other than what was asked. A call with a fault fails with EINVAL or
// EBUSY if it can fail. When built with the address sanitizer, the memory of destroyed objects is
// also poisoned.
//
// The state is global to the process: tests that use the package must not run in parallel, and
// start with [Start].
//
// A test binary that contains this package knows no other devices. Tests on kernel devices must
// therefore be in packages that do not import it.
//
// Without cgo, on systems other than Linux, and with the tag noibverbs, the package is empty.
package fakeverbs

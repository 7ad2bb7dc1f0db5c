// SPDX-License-Identifier: BSD-3-Clause

// Package fakeverbs is libibverbs and librdmacm without a device: it defines, in C, the functions
// of both libraries that packages verbs and cm look up there, and gives them out in place of the
// libraries'. So a test that imports this package runs the providers' own code down to the call, on
// machines that have no RDMA at all. [Lookups] says what was looked up; a test of each provider
// requires that this package has all of it.
//
// There are two devices. fake0 resembles a RoCE adapter: RC, UC and UD QPs, all operations, memory
// windows, address handles, on-demand paging, six GIDs; 192.0.2.1/24 and 2001:db8::1/64 are its
// addresses, and it is behind the loopback addresses. fake1 resembles the siw of the Linux kernel,
// 198.51.100.1/24 and 2001:db8:1::1/64: RC QPs that only the connection manager brings up, whose
// state a query does not tell, Writes, Reads and Sends, negative results of posts, siw's vendor id.
// A test that wants another driver sets VendorID, with [SetDeviceAttr].
//
// A request that is posted is recorded and waits until the test completes it. Under [AutoComplete]
// it completes at once, under [Loopback] it is executed between QPs of the process. Completion
// channels, asynchronous events and event channels are descriptors that are readable while an event
// is queued. Destroying an object drops the events of it that nobody has read, then waits until
// those that were read are acknowledged, as the libraries do. Ids of the connection manager connect
// within the process.
//
// What a program does wrong is a fault, which [Faults] tells: a call on an object that was
// destroyed, an object that is destroyed before what uses it, a wait for an acknowledgement that
// does not come, a request that makes kernel siw do something else than was asked. A call with a
// fault fails with EINVAL or EBUSY where it can fail. Built with the address sanitizer, memory of
// destroyed objects is poisoned too.
//
// The state is the process's: tests that use the package do not run in parallel, and begin with
// [Start].
//
// A test binary that has this package in knows no other device: tests that are to run on a device
// of the kernel belong to another package than those that import this one.
//
// The package is empty but for this text without cgo, on systems other than Linux and with the tag
// noibverbs.
package fakeverbs

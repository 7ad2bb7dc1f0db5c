// SPDX-License-Identifier: BSD-3-Clause

package lifetime

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrClosed is the cause of every error of a call on a closed handle. It also matches net.ErrClosed
// and os.ErrClosed with errors.Is.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string { return "use of closed handle" }

func (closedError) Is(target error) bool { return target == net.ErrClosed || target == os.ErrClosed }

// ErrBusy reports that an object has live children.
var ErrBusy = errors.New("object is in use")

// Node is an object in the tree of lifetimes: a Guard for its calls, the parents that must outlive
// it, and the children that must be closed before it. An embedded Node must be set up by Init and
// must not be copied.
//
// States: open -> closing (BeginClose: no calls, no new children) -> gone (End: no longer listed by
// Live).
type Node struct {
	Guard
	made    atomic.Bool // Init has succeeded
	kind    string
	stack   []uintptr
	parents []*Node
	owner   any // see SetOwner

	mu       sync.Mutex         // guards the following; a parent's mu is never taken while holding a child's
	children map[*Node]struct{} // live children
	closing  bool
	closer   func() error
}

// live lists every Node between Init and End.
var live struct {
	sync.Mutex
	m map[*Node]struct{}
}

// SetOwner sets what n and its descendants belong to, such as a device. It must be called before
// Init; a Node without an owner inherits that of its first parent.
func (n *Node) SetOwner(owner any) { n.owner = owner }

// Init makes n a live object of the given kind below its parents. CloseAll calls closer. Init fails
// with ErrClosed if a parent is closed; n may then be used again.
func (n *Node) Init(kind string, closer func() error, parents ...*Node) error {
	n.kind, n.closer, n.parents = kind, closer, nil
	for _, p := range parents {
		if p == nil {
			continue
		}
		if !p.adopt(n) {
			n.leaveParents()
			return ErrClosed
		}
		n.parents = append(n.parents, p)
		if n.owner == nil {
			n.owner = p.owner
		}
	}
	n.stack = make([]uintptr, 16)
	n.stack = n.stack[:runtime.Callers(2, n.stack)]
	live.Lock()
	if live.m == nil {
		live.m = make(map[*Node]struct{})
	}
	live.m[n] = struct{}{}
	live.Unlock()
	n.made.Store(true)
	return nil
}

// Stage returns "open" or "closed", and "" before Init has succeeded. Once it is not "", everything
// written before Init can be read without a lock, even by a goroutine that did not get the object
// from its constructor.
func (n *Node) Stage() string {
	switch {
	case !n.made.Load():
		return ""
	case n.Closed():
		return "closed"
	}
	return "open"
}

func (n *Node) adopt(child *Node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return false
	}
	if n.children == nil {
		n.children = make(map[*Node]struct{})
	}
	n.children[child] = struct{}{}
	return true
}

func (n *Node) leaveParents() {
	for _, p := range n.parents {
		p.mu.Lock()
		delete(p.children, n)
		p.mu.Unlock()
	}
}

// Adopt adds a parent to n, which must be live. It fails with ErrClosed if the parent is closed.
// Adopt and Leave of a Node must not run concurrently with each other or with its End.
func (n *Node) Adopt(parent *Node) error {
	if !parent.adopt(n) {
		return ErrClosed
	}
	n.parents = append(n.parents, parent)
	return nil
}

// Leave removes n from one of its parents.
func (n *Node) Leave(parent *Node) {
	parent.mu.Lock()
	delete(parent.children, n)
	parent.mu.Unlock()
	n.parents = slices.DeleteFunc(n.parents, func(p *Node) bool { return p == parent })
}

// BeginClose shuts n to new calls and new children. It reports first = true to the one caller that
// must continue with Drain and End; later callers get false and no error. If n has live children,
// nothing happens, and the error Is ErrBusy and counts them by kind.
func (n *Node) BeginClose() (first bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return false, nil
	}
	if len(n.children) > 0 {
		return false, fmt.Errorf("%w by %s", ErrBusy, n.census())
	}
	n.closing = true
	n.Shut()
	return true, nil
}

// census counts the live children by kind, for example "2 MR, 1 QP". The caller holds n.mu.
func (n *Node) census() string {
	count := make(map[string]int)
	for c := range n.children {
		count[c.kind]++
	}
	parts := make([]string, 0, len(count))
	for kind, k := range count {
		parts = append(parts, fmt.Sprintf("%d %s", k, kind))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// End removes n from its parents and from Live.
func (n *Node) End() {
	n.leaveParents()
	live.Lock()
	delete(live.m, n)
	live.Unlock()
}

// CloseChildren closes every descendant of n, children before their parents, and joins the errors.
// A busy one is closed after the others, which may be what keeps it busy.
func (n *Node) CloseChildren() error {
	n.mu.Lock()
	children := make([]*Node, 0, len(n.children))
	for c := range n.children {
		children = append(children, c)
	}
	n.mu.Unlock()
	var errs []error
	var busy []*Node
	for _, c := range children {
		// A child of two parents here (a QP below a PD and a CQ) is closed only once: Close is
		// idempotent.
		errs = append(errs, c.CloseChildren())
		if err := c.closer(); errors.Is(err, ErrBusy) {
			busy = append(busy, c)
		} else {
			errs = append(errs, err)
		}
	}
	for _, c := range busy {
		errs = append(errs, c.closer())
	}
	return errors.Join(errs...)
}

// CloseTree closes every descendant of n, and then n.
func (n *Node) CloseTree() error {
	return errors.Join(n.CloseChildren(), n.closer())
}

// Describe returns n's kind and the stack that created it.
func (n *Node) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s created at\n", n.kind)
	frames := runtime.CallersFrames(n.stack)
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}

// Live returns the objects that were created and not closed, in no particular order. Whatever it
// returns at the end of a test binary has leaked.
func Live() []*Node {
	live.Lock()
	defer live.Unlock()
	nodes := make([]*Node, 0, len(live.m))
	for n := range live.m {
		nodes = append(nodes, n)
	}
	return nodes
}

// LiveOf returns an owner's objects that were created and not closed, in no particular order.
func LiveOf(owner any) []*Node {
	return slices.DeleteFunc(Live(), func(n *Node) bool { return n.owner != owner })
}

// Keep removes n from Live permanently, because it is meant to live as long as the process.
func (n *Node) Keep() {
	live.Lock()
	delete(live.m, n)
	live.Unlock()
}

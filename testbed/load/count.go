// SPDX-License-Identifier: BSD-3-Clause

package load

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Counts holds named counters. The zero value is ready to use; all methods may be called
// concurrently.
type Counts struct {
	mu sync.Mutex
	m  map[string]int
}

// Add adds n to a counter.
func (c *Counts) Add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = make(map[string]int)
	}
	c.m[what] += n
}

// Get returns the value of a counter.
func (c *Counts) Get(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[what]
}

// String lists all counters by name, such as "3 cut, 12 echo".
func (c *Counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for what, n := range c.m {
		parts = append(parts, fmt.Sprintf("%s %d", what, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// SPDX-License-Identifier: BSD-3-Clause

package main

/*
#include "../verbs/ibv_abi.h"
#include "bridge.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

const (
	einval = C.int(syscall.EINVAL)
	enomem = C.int(syscall.ENOMEM)
)

var verbose bool // set by start

// told records the texts printed by say and the keys of sayOnce.
var told struct {
	mu sync.Mutex
	of map[string]struct{}
}

// mostTold bounds told. Once it is reached, nothing more is printed.
const mostTold = 4096

// say prints an error of which a C program gets only the number, if the user asked for it
// (GOVERBS_RUN_VERBOSE). Each text is printed once.
func say(format string, args ...any) {
	if verbose {
		text := fmt.Sprintf(format, args...)
		sayOnce(text, text)
	}
}

// sayOnce prints the first text for each key.
func sayOnce(key, text string) {
	told.mu.Lock()
	defer told.mu.Unlock()
	if _, again := told.of[key]; again || len(told.of) == mostTold {
		return
	}
	if told.of == nil {
		told.of = make(map[string]struct{})
	}
	told.of[key] = struct{}{}
	fmt.Fprintf(os.Stderr, "goverbs run: %s\n", text)
}

// sayFailed prints a failed completion. Of flushed ones only the first of each QP is printed.
func sayFailed(w *verbs.WC) {
	if !verbose {
		return
	}
	key := w.String()
	if w.Status == verbs.WCWRFlushErr {
		key = fmt.Sprintf("flushed %d", w.QPNum)
	}
	sayOnce(key, w.String())
}

// errno returns the errno with which the call of libibverbs or librdmacm fails.
func errno(err error) C.int {
	if err == nil {
		return 0
	}
	say("%v", err)
	return C.int(number(err))
}

func number(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case errors.Is(err, verbs.ErrBusy):
		return syscall.EBUSY
	case errors.Is(err, verbs.ErrQueueFull):
		return syscall.ENOMEM
	case errors.Is(err, verbs.ErrNotSupported):
		return syscall.EOPNOTSUPP
	case errors.Is(err, cm.ErrSetupTimeout), errors.Is(err, context.DeadlineExceeded):
		return syscall.ETIMEDOUT
	case errors.As(err, &e) && e != 0:
		return e
	}
	return syscall.EINVAL
}

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
	"syscall"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/runenv"
	"github.com/goverbs/goverbs/verbs"
)

const (
	einval = C.int(syscall.EINVAL)
	enomem = C.int(syscall.ENOMEM)
)

var verbose = os.Getenv(runenv.Verbose) != "" && os.Getenv(runenv.Verbose) != "0"

// say prints an error that a C program sees only as a number, if the user has asked for that (GOVERBS_RUN_VERBOSE).
func say(format string, args ...any) {
	if verbose {
		fmt.Fprintf(os.Stderr, "goverbs run: "+format+"\n", args...)
	}
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

// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package siw

func beforeWrite() {}

func afterRead() {}

// SPDX-License-Identifier: BSD-3-Clause

//go:build !race

package verbs

const raceDetector = false

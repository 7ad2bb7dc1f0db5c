// SPDX-License-Identifier: BSD-3-Clause

// Package guide has the tests of docs/guide.md, which keep it true: its code is that of programs
// that are built and run as tests, its names exist, and its table of the C libraries is complete.
// They also require that each package has an example that is run.
package guide

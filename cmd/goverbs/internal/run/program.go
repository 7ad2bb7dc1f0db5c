// SPDX-License-Identifier: BSD-3-Clause

package run

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
)

// unrunnable reports a program that cannot be run. Its exit status is the one that shells, env and
// nohup use.
type unrunnable struct {
	error
	status int // 127 = not found, 126 = cannot be executed
}

func (e *unrunnable) Status() int   { return e.status }
func (e *unrunnable) Unwrap() error { return e.error }

// find returns the path of a program, if libraries can be preloaded into it.
func find(name string) (string, error) {
	file, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", &unrunnable{fmt.Errorf("%s: not found in PATH", name), 127}
	}
	if err != nil && !errors.Is(err, exec.ErrDot) {
		status := 126
		if errors.Is(err, fs.ErrNotExist) {
			status = 127
		}
		return "", &unrunnable{fmt.Errorf("%s: %w", name, errors.Unwrap(err)), status}
	}
	if err := loadable(file, 0); err != nil {
		return "", &unrunnable{err, 126}
	}
	return file, nil
}

// maxScripts is how many interpreters may be chained, as on Linux.
const maxScripts = 4

// loadable returns an error if the program is not started by the dynamic linker, which does the
// preloading. For a script it checks the interpreter, not what the script starts.
func loadable(file string, depth int) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 && os.Geteuid() != 0 {
		return fmt.Errorf("%s is setuid or setgid: the dynamic linker preloads nothing from this directory into it",
			file)
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrPermission) {
		return nil // executable but not readable
	}
	if err != nil {
		return err
	}
	defer f.Close()
	first, _ := bufio.NewReader(f).ReadString('\n')
	if line, ok := strings.CutPrefix(first, "#!"); ok {
		words := strings.Fields(line)
		if len(words) == 0 || depth == maxScripts {
			return nil // execve reports the error
		}
		return loadable(words[0], depth+1)
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return nil // not ELF: execve reports the error
	}
	if own, err := elf.Open("/proc/self/exe"); err == nil { // same kind as the libraries
		defer own.Close()
		if e.Machine != own.Machine || e.Class != own.Class {
			return fmt.Errorf("%s is for %v (%v): the libraries are for %v (%v)", file, e.Machine, e.Class, own.Machine,
				own.Class)
		}
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			return nil
		}
	}
	return fmt.Errorf("%s is linked statically: nothing can be preloaded into it", file)
}

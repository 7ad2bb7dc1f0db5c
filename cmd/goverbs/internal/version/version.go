// SPDX-License-Identifier: BSD-3-Clause

// Package version reports the program's components: its module and revision, Go, and the libraries
// of rdma-core that it finds.
package version

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbs"
)

// Report is the output of version. Its JSON form is that of version --json.
type Report struct {
	Module     string  `json:"module"`
	Version    string  `json:"version"`    // of the module: "(devel)" if built in its directory
	Revision   string  `json:"revision"`   // of the repository, "" if the build did not record it
	Time       string  `json:"time"`       // of that revision, in RFC 3339 format
	Modified   bool    `json:"modified"`   // files differed from that revision
	Go         string  `json:"go"`         // the version of Go
	Platform   string  `json:"platform"`   // for example linux/amd64
	RDMACore   string  `json:"rdma_core"`  // version of rdma-core, "" if unknown
	Libibverbs library `json:"libibverbs"` // for the kernel devices
	Librdmacm  library `json:"librdmacm"`  // for their connections
}

// library is a library of rdma-core, which the program opens at run time.
type library struct {
	File  string `json:"file,omitempty"`  // its path, "" if the system does not reveal it
	Error string `json:"error,omitempty"` // why it cannot be used
}

// New collects a Report on the program and its libraries.
func New() *Report {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	r := program(info)
	r.Libibverbs = opened("libibverbs.so.", verbs.RDMACore())
	r.Librdmacm = opened("librdmacm.so.", cm.RDMACore())
	r.RDMACore = packageVersion(filepath.Base(r.Libibverbs.File))
	return r
}

// program returns what the build recorded.
func program(info *debug.BuildInfo) *Report {
	r := &Report{Module: info.Main.Path, Version: info.Main.Version, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			r.Revision = s.Value
		case "vcs.time":
			r.Time = s.Value
		case "vcs.modified":
			r.Modified = s.Value == "true"
		}
	}
	return r
}

// opened describes a library after an attempt to open it.
func opened(prefix string, err error) library {
	if err != nil {
		return library{Error: err.Error()}
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return library{}
	}
	defer maps.Close()
	return library{File: mapped(maps, prefix)}
}

// mapped returns the first mapped file whose name has the prefix. maps has the format of
// proc_pid_maps(5), in which symbolic links are resolved.
func mapped(maps io.Reader, prefix string) string {
	for sc := bufio.NewScanner(maps); sc.Scan(); {
		if at := strings.IndexByte(sc.Text(), '/'); at >= 0 &&
			strings.HasPrefix(filepath.Base(sc.Text()[at:]), prefix) {
			return sc.Text()[at:]
		}
	}
	return ""
}

// packageVersion returns the rdma-core version in the name of a library, which follows the
// library's own two numbers: 44.0 in libibverbs.so.1.14.44.0.
func packageVersion(name string) string {
	_, numbers, _ := strings.Cut(name, ".so.")
	if parts := strings.SplitN(numbers, ".", 3); len(parts) == 3 {
		return parts[2]
	}
	return ""
}

// Print prints one value per line.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "module\t%s %s\n", r.Module, r.Version)
	revision := "not recorded by the build"
	if r.Revision != "" {
		revision = r.Revision + " of " + r.Time
		if r.Modified {
			revision += ", modified"
		}
	}
	fmt.Fprintf(t, "revision\t%s\n", revision)
	fmt.Fprintf(t, "go\t%s %s\n", r.Go, r.Platform)
	core := r.RDMACore
	switch {
	case r.Libibverbs.Error != "":
		core = "not found"
	case core == "":
		core = "found"
	}
	fmt.Fprintf(t, "rdma-core\t%s\n", core)
	fmt.Fprintf(t, "libibverbs\t%s\n", r.Libibverbs)
	fmt.Fprintf(t, "librdmacm\t%s\n", r.Librdmacm)
	return t.Flush()
}

func (l library) String() string {
	switch {
	case l.Error != "":
		return l.Error
	case l.File != "":
		return l.File
	}
	return "found"
}

// SPDX-License-Identifier: BSD-3-Clause

package verbstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNames: results are stored by name, so names must be plain and unique.
func TestNames(t *testing.T) {
	plain := regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	seen := make(map[string]bool)
	for _, s := range subjects {
		require.Regexp(t, plain, s.name)
		require.NotEmpty(t, s.tests, s.name)
		for _, c := range s.tests {
			name := s.name + "/" + c.name
			require.Regexp(t, plain, c.name)
			require.False(t, seen[name], name)
			require.NotNil(t, c.run, name)
			seen[name] = true
		}
	}
	require.Len(t, Subjects(), len(subjects))
	require.Greater(t, len(seen), 150)
}

// TestAddFields checks the suite's own definition against the vectors.
func TestAddFields(t *testing.T) {
	for _, v := range fetchAddVectors {
		require.Equal(t, v.result, addFields(v.original, v.add, v.mask), v.name)
	}
}

// bare returns a world without devices.
func bare(t *testing.T, collect func(Result)) *world {
	return &world{T: t, f: Fabric{Record: collect}, a: &host{}, b: &host{}, rec: &record{name: "A/B"}}
}

// TestEarlyEnd: a test fails if it returns early without recording anything, or does not return its
// outcome.
func TestEarlyEnd(t *testing.T) {
	const variable = "VERBSTEST_OUTCOME"
	tests := map[string]func(w *world) outcome{
		"silent":  func(*world) outcome { return noted },
		"nothing": func(*world) (o outcome) { return o },
		"lacking": func(w *world) outcome { w.without("x"); return noted },
		"whole":   func(*world) outcome { return tested },
		"partly":  func(w *world) outcome { w.without("x"); return tested },
		"part": func(w *world) outcome {
			w.sub("C", func(*world) outcome { return noted })
			return tested
		},
	}
	if run := tests[os.Getenv(variable)]; run != nil {
		bare(t, nil).run(run)
		return
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	for name, want := range map[string]string{
		"silent":  "A/B ended before its subject and has noted nothing that the device lacks",
		"nothing": "A/B does not say whether it got to its subject: outcome 0",
		"part":    "A/B/C ended before its subject and has noted nothing that the device lacks",
		"lacking": "",
		"whole":   "",
		"partly":  "",
	} {
		cmd := exec.Command(exe, "-test.run=^TestEarlyEnd$")
		cmd.Env = append(os.Environ(), variable+"="+name)
		out, err := cmd.CombinedOutput()
		if want == "" {
			require.NoError(t, err, "%s: %s", name, out)
			continue
		}
		require.Error(t, err, name)
		require.Contains(t, string(out), want)
	}
}

// TestParts: what a part records appears in its own result and in that of its test.
func TestParts(t *testing.T) {
	var results []Result
	w := bare(t, func(r Result) { results = append(results, r) })
	w.sub("C", func(w *world) outcome {
		w.sub("D", func(w *world) outcome {
			w.without("x")
			w.without("x")
			return noted
		})
		w.without("y")
		return tested
	})
	w.sub("E", func(*world) outcome { return tested })
	w.report(false)
	x, y := Lack{"x", "none"}, Lack{"y", "none"}
	require.Equal(t, []Result{{Test: "A/B/C/D", Lacks: []Lack{x}}, {Test: "A/B/C", Lacks: []Lack{x, y}},
		{Test: "A/B/E"}, {Test: "A/B", Lacks: []Lack{x, y}}}, results)
}

// TestQuestions: tests must query whether a device supports an operation only through functions
// that record its absence, so that nothing is skipped silently.
func TestQuestions(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.Greater(t, len(files), 30)
	asked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		switch n := len(regexp.MustCompile(`\.Supports\(`).FindAll(text, -1)); file {
		case "device.go", "run_test.go": // they check the answers themselves
		case "results.go", "mw.go": // has and noWindows
			require.Equal(t, 1, n, file)
			asked++
		default:
			require.Zero(t, n, "%s asks by Supports", file)
		}
	}
	require.Equal(t, 2, asked)
}

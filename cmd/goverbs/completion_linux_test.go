// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// shell runs a shell that finds the program under test as goverbs, ignores the user's startup
// files, and returns its stdout.
func shell(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(t, err, "%s, which judges the completion, is not installed; on Debian, as root: "+
		"DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends %[1]s", name)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(clitest.Program, filepath.Join(dir, "goverbs")))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir,
		"XDG_DATA_HOME="+dir, "TERM=dumb")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, &stderr)
	return string(out)
}

// TestBashCompletes: bash completes words with the script it has read. The test replaces a function
// of the package bash-completion, which need not be installed, and a builtin that works only in an
// interactive shell.
func TestBashCompletes(t *testing.T) {
	const script = `set -u
_init_completion() { words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}; }
compopt() { :; }
source <(goverbs completion bash)
complete -p goverbs
COMP_TYPE=9 COMP_LINE="goverbs demo --device usiw0-" COMP_POINT=${#COMP_LINE} COMP_WORDS=(goverbs demo --device usiw0-) COMP_CWORD=3
COMPREPLY=()
__start_goverbs
printf '<%s>\n' "${COMPREPLY[@]}"
`
	require.Regexp(t, `(?s)^complete .*-F __start_goverbs goverbs\n<usiw0-plain>\n$`,
		shell(t, "bash", "--norc", "-c", script))
}

// TestZshCompletes: a zsh user types the beginning of a word and a tab. An echo before the line
// shows the completed line.
func TestZshCompletes(t *testing.T) {
	const script = `zmodload zsh/zpty
zpty user zsh -fi
zpty -w user 'autoload -Uz compinit; compinit -uD; source <(goverbs completion zsh); print rea""dy'
zpty -r user out '*ready*'
zpty -w user $'goverbs demo --device usiw0-\t\x01echo the line is: '
zpty -w user 'print do""ne'
zpty -r user out '*done*'
print -r -- $out
`
	require.Regexp(t, `\nthe line is: goverbs demo --device usiw0-plain\r?\n`, shell(t, "zsh", "-fc", script))
}

// TestFishCompletes: fish lists its completions for the beginning of a word.
func TestFishCompletes(t *testing.T) {
	const script = `goverbs completion fish | source
complete -C "goverbs demo --device usiw0-"
`
	require.Regexp(t, `^usiw0-plain\t[^\n]+\n$`, shell(t, "fish", "--no-config", "-c", script))
}

// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/cmd/goverbs/internal/clitest"
)

// TestBashCompletes: bash, which reads the script, completes words by it. The function and the builtin that the script calls are
// those of the package bash-completion, which need not be installed, and of a shell with a user.
func TestBashCompletes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Symlink(clitest.Program, filepath.Join(dir, "goverbs")))
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
	cmd := exec.Command("bash", "--norc", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?s)^complete .*-F __start_goverbs goverbs\n<usiw0-plain>\n$`, string(out))
}

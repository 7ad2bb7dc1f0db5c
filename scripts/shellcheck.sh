#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# Runs shellcheck on every shell script of the repository: files that end in .sh or .bash, or whose
# first line names a shell.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts=()
while IFS= read -r -d '' file; do
	case $file in
	*.sh | *.bash) scripts+=("$file") ;;
	*) if head -n 1 "$file" | grep -qaE '^#!.*sh$'; then scripts+=("$file"); fi ;;
	esac
done < <(find . -name .git -prune -o -path ./bin -prune -o -type f ! -name '*.go' -print0)
echo "== shellcheck of ${#scripts[@]} scripts"
shellcheck -x -S warning "${scripts[@]}"

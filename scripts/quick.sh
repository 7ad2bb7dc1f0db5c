#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause

# usage: scripts/quick.sh [--list] [REVISION]
#
# Checks what changed since REVISION (default: the last commit), whether it is committed or not, in under a minute for most changes:
# gofmt, go vet, and the tests of the packages that changed and of those that depend on them. It leaves out, and says so:
#
#	programs    commands, examples, bench, testbed and preload are built and vetted, but tested only if they changed themselves
#	slow tests  $slow, everywhere
#	limited     of these packages, if they only depend on what changed, only $part
#
# The race detector, other platforms and the guest are make test's. --list prints the packages and runs nothing: a line for each, with
# what is done to it. With --list, names of changed files can come on stdin instead of from git: --list -.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS-$(go env GOFLAGS)} -buildvcs=false" # git may not read a clone of another user

# The tests that take longest, and the variants of the conformance suite besides the default.
slow='^Test(BigLoad|BigLoadSends|ScaleOperations|ClientsKilled|ManyDials|IdleMemory|HandFails|HandPSNs|HandPatient|HandTrialEnds)$'
slow+='|^TestVerbs$/^(NoCRC|Rev1|SmallMTU|Plain)$|^TestVerbsIWARP$/^(plain|mixed)$'
limited=(usiw cm rsocket compat/ibcompat internal/forward)
part='^Example|^TestVerbs$/^(Defaults|Send|Write|Connect|Lifetime)$|^TestVerbsIWARP$/^full$'
part+='|^TestConformance$/^(Send|Write|Connect|Lifetime)$|^TestConformance$//^(Send|Write|Connect|Lifetime)$'
part+='|^Test(EndpointDo|EndpointMessages|EndpointRPC|Conn|HTTP|Print|Model)$'

list=
if [ "${1-}" = --list ]; then
	list=1
	shift
fi
since=${1:-HEAD}

module=$(go list -m)
if [ "$since" = - ]; then
	mapfile -t files
else
	git rev-parse --verify --quiet "$since^{commit}" >/dev/null || { echo "quick: git has no revision $since" >&2; exit 2; }
	mapfile -t files < <(
		git diff --name-only "$since" --
		git ls-files --others --exclude-standard
	)
fi

if [ ${#files[@]} -eq 0 ]; then
	[ -n "$list" ] || echo "quick: nothing changed since $since; SINCE=REVISION compares with another revision"
	exit 0
fi

# changed are the packages of the files: a file that is not in a directory of a package belongs to the nearest one above.
declare -A known changed kind
while read -r package; do known[$package]=1; done < <(go list -e -f '{{.ImportPath}}' ./...)
for file in "${files[@]}"; do
	dir=$(dirname "$file")
	while [ "$dir" != . ] && [ -z "${known[$module/$dir]-}" ]; do dir=$(dirname "$dir"); done
	[ "$dir" = . ] || changed[$module/$dir]=1
done
# These read the sources, documents and scripts of the whole module.
changed[$module/internal/floors]=1
changed[$module/internal/guide]=1

# kind says what is done to each package: test, part or vet. go list says of a package and of its test binary what is linked into it.
while read -r package; do
	rel=${package#"$module/"}
	kind[$package]='test'
	[ -z "${changed[$package]-}" ] || continue
	case $rel in cmd/* | examples/* | bench/* | testbed/* | preload) kind[$package]='vet' ;; esac
	case " ${limited[*]} " in *" $rel "*) kind[$package]='part' ;; esac
done < <(go list -e -test -f '{{.ImportPath}}|{{.ImportPath}} {{range .Deps}}{{.}} {{end}}' ./... |
	awk -F '|' -v changed="${!changed[*]}" '
		BEGIN { n = split(changed, names, " "); for (i = 1; i <= n; i++) is[names[i]] }
		{
			sub(/ .*/, "", $1); sub(/\.test$/, "", $1); sub(/_test$/, "", $1)
			n = split($2, dependencies, " ")
			for (i = 1; i <= n; i++) if (dependencies[i] in is) { print $1; next }
		}' | sort -u)

full=() parts=() all=()
for package in $(printf '%s\n' "${!kind[@]}" | sort); do
	all+=("./${package#"$module/"}")
	case ${kind[$package]} in
	test) full+=("./${package#"$module/"}") ;;
	part) parts+=("./${package#"$module/"}") ;;
	esac
	[ -z "$list" ] || echo "${kind[$package]} ${package#"$module/"}"
done
[ -z "$list" ] || exit 0

echo "== ${#files[@]} files changed since $(git describe --always "$since"), ${#all[@]} packages to check: ${all[*]}"

failed=
step() {
	local what=$1
	shift
	echo "== $what"
	"$@" || failed="$failed${failed:+;} ${what%%:*}"
}

format() {
	local go=() file bad
	for file in "${files[@]}"; do
		case $file in *.go) [ ! -f "$file" ] || go+=("$file") ;; esac
	done
	[ ${#go[@]} -gt 0 ] || return 0
	bad=$(gofmt -l "${go[@]}")
	[ -z "$bad" ] || { echo "not formatted by gofmt: $bad" >&2; return 1; }
}

step "gofmt of the files that changed" format
step "go vet of ${#all[@]} packages" go vet "${all[@]}"
step "tests of ${#full[@]} packages: ${full[*]}; not $slow" go test -vet=off -short -p 4 -skip "$slow" "${full[@]}"
if [ ${#parts[@]} -gt 0 ]; then
	step "tests of ${#parts[@]} packages that depend on them: ${parts[*]}; only $part" \
		go test -vet=off -short -p 4 -run "$part" -skip "$slow" "${parts[@]}"
fi
if printf '%s\n' "${files[@]}" | grep -q '^examples/grpc-over-rdma/'; then
	echo "== examples/grpc-over-rdma is a module of its own, which make check tests"
fi
if [ -n "$failed" ]; then
	echo "== make quick: failed:$failed ($SECONDS s)" >&2
	exit 1
fi
echo "== make quick: passed in $SECONDS s; left out: the race detector, other platforms, the guest (make test)"

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # the variables of ../guest

# An apt of the test bed's own, in $cache/work/apt: it knows the suites that a kernel comes from and no others, whatever this
# machine has installed, enabled or pinned, and it installs nothing. Of this machine's apt it takes the mirror and the way to it.

# apt_open SUITE... reads the lists of suites of Debian.
apt_open() {
	local suite mirror security
	local -r apt=$cache/work/apt
	mirror=$(apt_mirror bookworm)
	[ -n "$mirror" ] || die "apt of this machine has no list of Debian 12: apt-get update"
	security=$(apt_mirror bookworm-security)
	mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
	: >"$apt/state/status"
	for suite in "$@"; do
		case $suite in
		*-security) apt_source "${security:-${mirror%/}-security}" "$suite" ;;
		*) apt_source "$mirror" "$suite" ;;
		esac
	done >"$apt/sources.list"
	# What it needs to know of the way: proxies and the like, but not which other files there are.
	apt-config dump | grep '^Acquire' | grep -v '^Acquire::IndexTargets' >"$apt/acquire"
	cat "$apt/acquire" - >"$apt/conf" <<-CONF
		Acquire::Languages "none";
		Acquire::Retries "3";
		APT::Architecture "amd64";
		APT::Architectures { "amd64"; };
		APT::Sandbox::User "root";
		Dir::Cache "$apt/cache";
		Dir::Etc::main "/dev/null";
		Dir::Etc::parts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::Etc::sourcelist "$apt/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Log "$apt";
		Dir::State "$apt/state";
		Dir::State::status "$apt/state/status";
	CONF
	apt_own apt-get update -qq --error-on=any || die "Debian's $* cannot be reached: no kernel $kernel"
}

# apt_mirror CODENAME prints where this machine has that suite of Debian from.
apt_mirror() {
	apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		awk -v codename="$1" '$1 == "Debian" && $2 == codename { print $3; exit }'
}

apt_source() { echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $1 $2 main"; }

# apt_own COMMAND... runs a command of apt with that state.
apt_own() { APT_CONFIG=$cache/work/apt/conf "$@" >&2 </dev/null {lock}>&-; }

# apt_cache COMMAND... is apt-cache with it.
apt_cache() { APT_CONFIG=$cache/work/apt/conf apt-cache "$@"; }

# apt_unpack DIR PACKAGE[=VERSION]... unpacks packages, whose scripts do not run.
apt_unpack() {
	local -r debs=$cache/work/debs
	local deb
	mkdir -p "$1" "$debs"
	(cd "$debs" && apt_own apt-get -qq download "${@:2}") || die "apt-get cannot download ${*:2}"
	for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$1"; done
	rm -rf "$debs"
}

# apt_depends PACKAGE=VERSION NAME prints what a package depends on whose name matches, as PACKAGE or PACKAGE=VERSION.
apt_depends() {
	apt_cache show "$1" | sed -n 's/^Depends: //p' | tr ',' '\n' |
		sed -E 's/^ *([^ ]+) \(= ([^)]+)\).*/\1=\2/; s/^ *([^ ]+).*/\1/' | grep -E "^($2)(=|\$)" || true
}

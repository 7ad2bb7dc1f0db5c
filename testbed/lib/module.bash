# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # the variables of ../guest

# The modules in $cache/work/modules, built for a kernel with its headers.

# build_here RELEASE VERSION builds them with this machine's compiler, which is that of the kernels of its Debian.
build_here() {
	local -r root=$cache/work/headers
	local packages
	mapfile -t packages < <(apt_depends "linux-headers-$1=$2" 'linux-headers-[^ ]*-common|linux-kbuild-[^ ]*')
	apt_unpack "$root" "linux-headers-$1=$2" "${packages[@]}"
	# The only path in them that expects them to be installed.
	sed -i "s,/usr/src/,$root/usr/src/," "$root/usr/src/linux-headers-$1/Makefile"
	build "$root/usr/src/linux-headers-$1" "$cache/work/modules"
	rm -rf "$root"
}

# build_there RELEASE VERSION builds them in a tree of the Debian that the kernel is from: what its headers bring along needs a
# newer C library than this machine has.
build_there() {
	local -r tree=$cache/work/tree
	# With /proc, which objtool reads, for as long as the command runs.
	# shellcheck disable=SC2016 # the shell within expands it
	local -ra in=(unshare --mount sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' "$tree")
	"$testbed/../scripts/need.sh" mmdebstrap >&2 {lock}>&- || die "set-up of kernel $kernel needs mmdebstrap"
	[ "$(id -u)" -eq 0 ] || die "set-up of kernel $kernel makes a tree of Debian, which takes root"
	say "making a tree of trixie for the build"
	mmdebstrap --quiet --mode=root --variant=essential --include="binutils make linux-headers-$1=$2" \
		--aptopt="$cache/work/apt/acquire" trixie "$tree" "$cache/work/apt/sources.list" >&2 </dev/null {lock}>&- ||
		die "no tree of trixie"
	mv "$cache/work/modules" "$tree/modules"
	build "/lib/modules/$1/build" /modules "${in[@]}"
	mv "$tree/modules" "$cache/work/modules"
	rm -rf --one-file-system "$tree"
}

# build HEADERS MODULES [COMMAND...] builds each module below a directory, by way of a command. Without the description of
# types for BPF, which takes another program.
build() {
	local module
	for module in siw oops; do
		say "building $module"
		if ! "${@:3}" make -s -C "$1" M="$2/$module" CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$cache/work/log" 2>&1 {lock}>&-; then
			tail -n 40 "$cache/work/log" >&2
			die "$module cannot be built for kernel $kernel"
		fi
		"${@:3}" strip -g "$2/$module/$module.ko"
	done
}

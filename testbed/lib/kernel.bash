# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # the variables of ../guest

# The guest's kernel, in $cache/kernel. An edit of this file, of apt.bash or of module.bash downloads and builds it again.
#
#	release, vmlinuz     its name and its compressed image
#	lib/modules/RELEASE  its modules; in updates/ siw, which Debian leaves out, and a module with a fault for ../selftest
#
# It is unpacked from packages and never installed, and neither is what the modules are built with: nothing of it depends on
# what this machine has installed, and nothing stays.

# make_kernel STAMP makes it, of the newest version of which Debian has image, headers and source.
make_kernel() {
	local -r work=$cache/work
	local release version series packages
	rm -rf "$cache/kernel" "$work" "$cache/stamp"
	mkdir -p "$work/root"
	case $kernel in
	newest)
		apt_open trixie trixie-security trixie-backports
		read -r version release series < <(newest_kernel trixie-backports) || true
		;;
	*)
		apt_open bookworm bookworm-security
		read -r version release series < <(newest_kernel 'bookworm|bookworm-security' "$kernel") || true
		;;
	esac
	[ -n "$version" ] || die "no version of kernel $kernel has image, headers and source"
	say "downloading Linux $release ($version)"
	# Some kernels are in one package, some in others on which it depends.
	mapfile -t packages < <(apt_depends "linux-image-$release=$version" 'linux-(base|binary|modules)-[^ ]*')
	apt_unpack "$work/image" "linux-image-$release=$version" "${packages[@]}"
	if [ -d "$work/image/usr/lib/modules" ]; then
		mkdir -p "$work/image/lib"
		mv "$work/image/usr/lib/modules" "$work/image/lib/"
	fi
	mkdir -p "$work/root/lib"
	mv "$work/image/lib/modules" "$work/root/lib/"
	mv "$work/image/boot/vmlinuz-$release" "$work/root/vmlinuz" 2>/dev/null ||
		mv "$work/root/lib/modules/$release/vmlinuz" "$work/root/"
	rm -rf "$work/image"

	apt_unpack "$work/source" "linux-source-$series=$version"
	mkdir -p "$work/modules/siw"
	tar -C "$work/modules/siw" --strip-components=5 -xf "$work/source/usr/src/linux-source-$series.tar.xz" \
		"linux-source-$series/drivers/infiniband/sw/siw"
	rm -rf "$work/source"
	cp -r "$testbed/selftest/testdata/oops" "$work/modules/oops"
	case $kernel in
	newest) build_there "$release" "$version" ;;
	*) build_here "$release" "$version" ;;
	esac
	install -D -m 644 -t "$work/root/lib/modules/$release/updates" "$work"/modules/*/*.ko
	depmod -b "$work/root" "$release"
	echo "$release" >"$work/root/release"
	echo "$1" >"$work/root/stamp"
	mv "$work/root" "$cache/kernel"
	rm -rf --one-file-system "$work"
}

# newest_kernel SUITES [SERIES] prints version, release and series of the newest kernel of a series, or of all, of which one
# of the suites (separated by |) has image, headers and source: "6.1.192-2 6.1.0-56-amd64 6.1".
newest_kernel() {
	local names
	mapfile -t names < <(apt_cache pkgnames linux- |
		grep -xE 'linux-(image|headers)-[0-9.]+[-+][0-9a-z]+-amd64|linux-source-[0-9]+\.[0-9]+')
	# " linux-source-6.1 | 6.1.192-2 | URI bookworm-security/main amd64 Packages"
	apt_cache madison "${names[@]}" | awk -F ' *[|] *' -v suites="^($1)/main\$" -v series="${2-}" '
		{ split($3, where, " ") }
		where[2] !~ suites { next }
		{ gsub(/^ */, "", $1) }
		$1 ~ /^linux-source-/ { source[$2] = substr($1, 14) }
		$1 ~ /^linux-headers-/ { headers[substr($1, 15), $2] = 1 }
		$1 ~ /^linux-image-/ { image[substr($1, 13), $2] = 1 }
		END {
			for (i in image) {
				split(i, key, SUBSEP)
				if (headers[i] && source[key[2]] && (series == "" || source[key[2]] == series))
					print key[2], key[1], source[key[2]]
			}
		}' | sort -V | tail -n 1
}

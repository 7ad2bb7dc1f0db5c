# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # the variables of ../guest

# The guest's kernel. An edit of this file downloads and builds it again.

# make_kernel STAMP unpacks the kernel package, which is not installed, and builds siw for it.
make_kernel() {
	local kernel=$cache/kernel work=$cache/work release version series
	local apt=$testbed/../scripts/apt.sh
	rm -rf "$kernel" "$work" "$cache/stamp"
	mkdir -p "$work/root"
	# Image, headers and sources must be of one version: the headers decide. "linux-headers-6.1.0-56-amd64 (= 6.1.192-2)"
	# Without root or network those that are installed have to do.
	"$apt" "the newest kernel headers" linux-headers-amd64 >&2 {lock}>&- || say "no newer kernel headers"
	read -r release version < <(dpkg-query -W -f '${Depends}\n' linux-headers-amd64 |
		sed -n 's/^linux-headers-\([^ ]*\) (= \([^)]*\)).*/\1 \2/p') || true
	[ -n "$version" ] || die "no kernel headers"
	series=$(cut -d. -f1,2 <<<"$release")
	if [ "$(dpkg-query -W -f '${Version}' "linux-source-$series" 2>/dev/null)" != "$version" ]; then
		"$apt" "the source of siw" "linux-source-$series=$version" >&2 {lock}>&- || die "no kernel sources"
	fi
	say "downloading Linux $release ($version)"
	# apt gives up its rights for a download, and may not be able to write here without them.
	(cd "$work" && apt-get -o APT::Sandbox::User=root -qq download "linux-image-$release=$version" {lock}>&-) ||
		die "apt-get cannot download linux-image-$release=$version"
	dpkg-deb -x "$work"/linux-image-*.deb "$work/root"
	rm -rf "$work"/linux-image-*.deb "$work/root/usr"

	say "building siw"
	tar -C "$work" --strip-components=4 -xf "/usr/src/linux-source-$series.tar.xz" \
		"linux-source-$series/drivers/infiniband/sw/siw"
	if ! make -s -C "/lib/modules/$release/build" M="$work/siw" CONFIG_RDMA_SIW=m modules >"$work/log" 2>&1; then
		tail -n 40 "$work/log" >&2
		die "siw of $series cannot be built"
	fi
	strip -g "$work/siw/siw.ko"
	install -D -m 644 -t "$work/root/lib/modules/$release/updates" "$work/siw/siw.ko"
	depmod -b "$work/root" "$release"
	echo "$release" >"$work/root/release"
	echo "$1" >"$work/root/stamp"
	mv "$work/root" "$kernel"
	rm -rf "$work"
}

# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# shellcheck disable=SC2154 # the variables of ../guest

# What the guest boots from, made once for each kernel in $cache:
#
#	kernel/       the kernel and its modules; see kernel.bash
#	vmlinux       the kernel without its compression
#	initramfs     mounts this machine's files and starts ../init/stage2
#
# Both parts carry a stamp of the scripts that made them and are made again when those change.

# programs lists the programs that set-up, the guest and tests in it call; scripts/need.sh knows where they come from.
programs=(qemu-system-x86_64 busybox-static cpio depmod xz make gcc-12 strip flock setpriv
	ip ss tc nft rdma tcpdump rping ibv_devinfo ib_send_bw)

# preloaded are the modules in the initramfs. Without KVM this is seconds faster than modprobe from the shared files,
# by which the guest loads all others.
preloaded=(virtio_pci 9pnet_virtio 9p overlay veth ib_uverbs rdma_ucm rdma_rxe siw)

# named are those of them that older kernels find by a name in use only, and newer ones do not have.
named=(crc32c_generic crc32_generic)

# setup makes what is missing. The caller holds the lock.
setup() {
	# What apt starts in the background must not keep the lock.
	"$testbed/../scripts/need.sh" "${programs[@]}" >&2 {lock}>&- || die "set-up needs programs that are missing"
	local kernel_stamp boot_stamp
	mkdir -p "$cache"
	kernel_stamp=$(stamp lib/apt.bash lib/kernel.bash lib/module.bash selftest/testdata/oops/{Kbuild,oops.c})
	boot_stamp=$(stamp lib/setup.bash init/stage1)
	[ "$(cat "$cache/kernel/stamp" 2>/dev/null)" = "$kernel_stamp" ] || make_kernel "$kernel_stamp"
	if [ "$(cat "$cache/stamp" 2>/dev/null)" != "$boot_stamp" ]; then
		rm -f "$cache/stamp"
		make_vmlinux
		make_initramfs
		echo "$boot_stamp" >"$cache/stamp"
		say "ready: Linux $(cat "$cache/kernel/release"), $(du -sh "$cache" | cut -f1) in $cache"
	fi
}

# stamp FILE... is a checksum of files of the test bed.
stamp() { (cd "$testbed" && sha256sum "$@" | sha256sum | cut -d' ' -f1); }

# make_vmlinux takes the kernel out of its compressed image, where that is xz: QEMU starts it either way, but without KVM
# the guest takes seconds to unpack it.
make_vmlinux() {
	local image offset
	image=$cache/kernel/vmlinuz
	offset=$(LC_ALL=C grep -abo -P '\xfd7zXZ\x00' "$image" | head -n 1 | cut -d: -f1) || true
	if [ -n "$offset" ]; then
		# xz complains of what follows its stream in the image.
		tail -c +$((offset + 1)) "$image" | xz -dc >"$cache/vmlinux" 2>/dev/null || true
		if [ "$(head -c 4 "$cache/vmlinux" | tail -c 3)" = ELF ]; then
			return
		fi
	fi
	cp "$image" "$cache/vmlinux"
}

make_initramfs() {
	local root=$cache/work/initramfs release module file
	release=$(cat "$cache/kernel/release")
	rm -rf "$root"
	mkdir -p "$root/bin" "$root/modules"
	cp /bin/busybox "$root/bin/"
	install -m 755 "$testbed/init/stage1" "$root/init"
	for module in "${named[@]}"; do
		modprobe -d "$cache/kernel" -S "$release" --show-depends "$module" 2>/dev/null || true
	done >"$cache/work/depends"
	for module in "${preloaded[@]}"; do
		modprobe -d "$cache/kernel" -S "$release" --show-depends "$module" || die "no module $module in Linux $release"
	done >>"$cache/work/depends"
	awk '$1 == "insmod" && !seen[$2]++ { print $2 }' "$cache/work/depends" | while read -r file; do
		module=${file##*/}
		case $module in
		*.xz) xz -dc "$file" >"$root/modules/${module%.xz}" ;;
		*) cp "$file" "$root/modules/" ;;
		esac
		echo "/modules/${module%.xz}"
	done >"$root/order"
	(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$cache/initramfs"
	rm -rf "$cache/work"
}

#!/bin/sh
# Usage: examples/vm/build.sh OUT
# Builds the stager image OUT/vm.aci, with its signature and a throwaway key
# beside it, from this folder, Debian's kernel and the qemu that is installed here from
# Debian's packages. It needs bin/aci, which make builds, and the packages that tools/deps.sh
# names for the examples.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d "$out/vm-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it
tree=$work/tree # what the image has beside the program
debian=$out/kernel # Debian's kernel, unpacked

die() {
	echo "vm: $*" >&2
	exit 1
}

# modules are the kernel's modules that the guest needs. The guest loads them in this order, and again what needs a later one.
modules() {
	cat <<-'END'
		drivers/virtio/virtio
		drivers/virtio/virtio_ring
		drivers/virtio/virtio_pci_legacy_dev
		drivers/virtio/virtio_pci_modern_dev
		drivers/virtio/virtio_pci
		drivers/char/virtio_console
		fs/fuse/fuse
		fs/fuse/virtiofs
		net/core/failover
		drivers/net/net_failover
		drivers/net/virtio_net
	END
}

# program builds the stager, which is the guest's first process as well.
program() {
	(cd "$here" && CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags 'seccomp netgo osusergo' \
		-ldflags "-s -w -linkmode external -extldflags '-static'" -o "$work/stager" .)
}

# kernel takes the kernel, and packs the program and the modules into its RAM disk.
kernel() {
	release=$("$top/tools/kernel.sh" "$debian")
	ram=$work/ram number=10
	mkdir -p "$tree/vm" "$ram/modules" "$ram/share" "$ram/dev" "$ram/proc"
	cp "$debian/boot/vmlinuz-$release" "$tree/vm/vmlinuz"
	cp "$work/stager" "$ram/init"
	for module in $(modules); do
		file=$debian/lib/modules/$release/kernel/$module.ko
		[ ! -e "$file.xz" ] || xz -dc "$file.xz" >"$file"
		[ -e "$file" ] || die "the kernel $release has no module $module"
		cp "$file" "$ram/modules/$number-$(basename "$file")"
		number=$((number + 1))
	done
	(cd "$ram" && find . | sort | /bin/busybox cpio -o -H newc -R 0:0 2>/dev/null) >"$tree/vm/initrd"
}

# programs PATH... takes programs or libraries of this machine, and the loader and libraries
# that they need.
programs() {
	for path in "$@"; do
		[ -e "$path" ] || die "$path is missing"
		for file in "$path" $(ldd "$path" | grep -o '/[^ ]*'); do
			[ ! -e "$tree$file" ] || continue
			mkdir -p "$tree$(dirname "$file")"
			cp -L "$file" "$tree$file"
		done
	done
}

# hypervisor takes qemu, its emulation of a processor, virtiofsd, and the firmware.
hypervisor() {
	programs /usr/bin/qemu-system-x86_64 /usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so /usr/lib/qemu/virtiofsd
	mkdir -p "$tree/usr/share/seabios" "$tree/usr/share/qemu"
	cp /usr/share/seabios/bios-256k.bin "$tree/usr/share/seabios/"
	cp /usr/share/qemu/linuxboot_dma.bin /usr/share/qemu/kvmvapic.bin "$tree/usr/share/qemu/"
}

program
kernel
hypervisor
"$top/bin/aci" --manifest "$here/aci-manifest.json" --stager "$work/stager" --add "$tree" -o "$out/vm.aci"

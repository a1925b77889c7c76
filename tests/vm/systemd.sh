#!/bin/sh
# Usage: tests/vm/systemd.sh OUT
# Boots a fresh Debian root with systemd as PID 1 in an emulated machine with cgroup v2 only, and runs
# tests/vm/service.sh in it: the commands of "A first pod" in README.md and of docs/pods.md, word for word, with the Debian
# packages. The machine boots a second time, for the commands after a reboot; then a pod as a service, and the server for
# Kubernetes. Exits with 0 if all checks passed. It writes its files to OUT/systemd and the console's output of the two
# boots to OUT/systemd/console.first and OUT/systemd/console.
#
# It needs root, the programs in bin/, the stager image in OUT and the images in OUT/images.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
mkdir -p "$1/systemd"
out=$(cd "$1" && pwd)
vm=$out/systemd
tree=$vm/tree # of the disk

# How long each boot of the machine may take, in seconds.
patience=${VMPATIENCE:-1800}

die() {
	echo "vm: $*" >&2
	exit 1
}

# debian unpacks a fresh Debian, which it keeps for the next time.
debian() {
	if [ ! -e "$vm/debian-cni.tar" ]; then
		mmdebstrap --quiet --variant=minbase --include=systemd,systemd-sysv,dbus,kmod,busybox-static,containernetworking-plugins bookworm - \
			"${MIRROR:-http://deb.debian.org/debian}" >"$vm/debian-cni.tar.new"
		mv "$vm/debian-cni.tar.new" "$vm/debian-cni.tar"
	fi
	rm -rf "$tree"
	mkdir "$tree"
	tar -x -f "$vm/debian-cni.tar" -C "$tree"
}

# packages makes the packages of what has been built.
packages() {
	rm -rf "$vm/dist"
	mkdir "$vm/dist"
	name=$(cd "$top" && go run ./names/print)
	VERSION=$("$top/bin/launcher" --version | sed 's/.* //') SOURCE_DATE_EPOCH=$(date +%s)
	export VERSION SOURCE_DATE_EPOCH
	"$top/tests/release/dist.sh" "$top/bin" "$(ls "$out/$name"-*-linux-amd64.aci)" "$vm/dist"
	cp "$vm/dist"/*.deb "$tree/root/"
}

# system adds the kernel's modules, the test, and the service that runs it.
system() {
	release=$("$top/tools/kernel.sh" "$vm/kernel")
	cp -r "$vm/kernel/lib/modules" "$tree/usr/lib/"
	chroot "$tree" depmod "$release" # Debian's modprobe needs indexes that busybox does not write
	cp "$out/images/busybox.aci" "$tree/root/"
	cp "$here/service.sh" "$tree/root/test"
	CGO_ENABLED=0 go build -C "$top" -o "$tree/root/client" ./cri/tests/client
	sed -n '/^```sh\( systemd\)*$/,/^```$/{/^```/!p}' "$top/README.md" >"$tree/root/first-pod"
	sed -n '/^```sh\( systemd\)*$/,/^```$/{/^```/!p}' "$top/docs/pods.md" >"$tree/root/stack"
	sed -n '/^```sh rebooted$/,/^```$/{/^```/!p}' "$top/docs/pods.md" >"$tree/root/rebooted"
	"$top/tests/docs/registry/make.sh" "$out/images" "$tree/root/hub"
	mkdir -p "$tree/etc/kurma/certs.d/docker.io"
	echo '[host."http://127.0.0.1:5000"]' >"$tree/etc/kurma/certs.d/docker.io/hosts.toml"
	echo vm >"$tree/etc/hostname"
	: >"$tree/etc/machine-id"
	rm -f "$tree/etc/resolv.conf"
	ln -sf /lib/systemd/systemd "$tree/init"
	cat >"$tree/etc/systemd/system/test.service" <<-'END'
		[Unit]
		After=basic.target systemd-journald.service
		[Service]
		Type=oneshot
		ExecStart=/root/test
		ExecStopPost=/usr/bin/systemctl poweroff --force --force
		StandardOutput=tty
		StandardError=tty
		TTYPath=/dev/ttyS0
	END
	mkdir -p "$tree/etc/systemd/system/multi-user.target.wants"
	ln -sf ../test.service "$tree/etc/systemd/system/multi-user.target.wants/test.service"
}

initrd() {
	ram=$vm/initrd.d
	rm -rf "$ram"
	mkdir -p "$ram/bin" "$ram/dev" "$ram/proc" "$ram/root" "$ram/lib/modules/$release/kernel/drivers/block"
	cp /bin/busybox "$ram/bin/"
	cp "$here/initrd.sh" "$ram/init"
	cp "$vm/kernel/lib/modules/$release"/modules.* "$ram/lib/modules/$release/"
	cp -r "$vm/kernel/lib/modules/$release/kernel/drivers/virtio" "$ram/lib/modules/$release/kernel/drivers/"
	cp "$vm/kernel/lib/modules/$release/kernel/drivers/block"/virtio_blk.ko* "$ram/lib/modules/$release/kernel/drivers/block/"
	(cd "$ram" && find . | /bin/busybox cpio -o -H newc 2>/dev/null) >"$vm/initrd"
	rm -rf "$ram"
}

disk() {
	rm -f "$vm/disk"
	mke2fs -q -t ext4 -E root_owner=0:0 -d "$tree" "$vm/disk" 4G
	rm -rf "$tree"
}

# boot CONSOLE runs the machine until it switches itself off.
boot() {
	timeout --foreground "$patience" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2048 \
		-nodefaults -no-reboot -display none -serial stdio \
		-kernel "$vm/kernel/boot/vmlinuz-$release" -initrd "$vm/initrd" \
		-drive "file=$vm/disk,format=raw,if=virtio,cache=unsafe" \
		-append "console=ttyS0 quiet loglevel=3 panic=-1 systemd.show_status=0 systemd.mask=getty.target systemd.mask=serial-getty@ttyS0.service systemd.unified_cgroup_hierarchy=1 rw" \
		</dev/null | sed -u 's,\r,,g' | tee "$vm/$1"
}

debian
packages
system
initrd
disk
boot console.first
grep -q '^SERVICE: reboot$' "$vm/console.first" || die "the service's test has not come to the reboot within $patience s, see $vm/console.first"
boot console
grep -q '^SERVICE: passed$' "$vm/console" || die "the service's test has not passed within $patience s, see $vm/console"

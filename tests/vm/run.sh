#!/bin/sh
# Usage: tests/vm/run.sh OUT [SUITE[=REGEXP]...]
# Boots Debian's cloud kernel in a virtual machine with cgroup v2 only, and runs
# test suites in it: all suites below, or the named ones; the whole suite, or the
# tests that match. Exits with 0 if all tests passed. It writes its files to OUT/vm
# and the console's output to OUT/vm/console.
#
# VMARCH=arm64 emulates a machine of that architecture, instead of amd64; the files
# amd64.sh and arm64.sh have what differs. The machine's files are in OUT/vm-arm64 then.
#
# VMKERNEL=FILE boots that kernel instead. It must have built in what Debian's
# kernel has as modules. VMAPPEND is added to the kernel's command line.
# VMFILESYSTEM=NAME fails unless the kernel has that file system.
#
# The machine is emulated in software, without KVM, and has no network. The script
# needs root, for the owners of files on the machine's disk, the programs in bin/,
# the stager image in OUT and the images in OUT/images.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
vm=vm${VMARCH:+-$VMARCH}
mkdir -p "$1/$vm"
out=$(cd "$1" && pwd)
vm=$out/$vm
tree=$vm/tree # of the disk
shift

# shellcheck source=tests/vm/amd64.sh
. "$here/${VMARCH:-amd64}.sh"

# How long the machine may take, in seconds.
patience=${VMPATIENCE:-$patience}

# After how many seconds without a sign of life the machine counts as stopped.
silence=240

die() {
	echo "vm: $*" >&2
	exit 1
}

# boots sets $image to VMKERNEL, or to Debian's kernel. It also sets $release, which is empty for a
# kernel without modules.
boots() {
	release='' image=${VMKERNEL:-}
	[ -z "$image" ] || return 0
	release=$(kernel)
	image=$vm/kernel/boot/vmlinuz-$release
}

# initrd makes the RAM disk that finds the real one.
initrd() {
	ram=$vm/initrd.d
	rm -rf "$ram"
	mkdir -p "$ram/bin" "$ram/dev" "$ram/proc" "$ram/root"
	cp "$busybox" "$ram/bin/"
	cp "$here/initrd.sh" "$ram/init"
	[ -z "$release" ] || initrd_modules "lib/modules/$release"
	(cd "$ram" && find . | /bin/busybox cpio -o -H newc 2>/dev/null) >"$vm/initrd"
	rm -rf "$ram"
}

# initrd_modules FOLDER adds the modules for the disk.
initrd_modules() {
	mkdir -p "$ram/$1/kernel/drivers/block"
	cp "$vm/kernel/$1"/modules.* "$ram/$1/"
	cp -r "$vm/kernel/$1/kernel/drivers/virtio" "$ram/$1/kernel/drivers/"
	cp "$vm/kernel/$1/kernel/drivers/block"/virtio_blk.ko* "$ram/$1/kernel/drivers/block/"
}

# build PROGRAM PACKAGE [COMMAND...] builds a static Go program for the machine.
build() {
	target=$1 module=$top source=$2
	case $source in
	./netplugins/*) module=$top/netplugins source=.${source#./netplugins} ;;
	github.com/containernetworking/*) module=$top/netplugins ;;
	esac
	shift 2
	[ $# -gt 0 ] || set -- build
	# shellcheck disable=SC2086 # a list of variables
	(cd "$module" && env $cross CGO_ENABLED=1 go "$@" -trimpath -buildvcs=false -tags 'seccomp netgo osusergo' \
		-ldflags "-s -w -linkmode external -extldflags '-static'" -o "$tree/$target" "$source")
}

# system fills the tree with what a small Debian has, and what tests call.
system() {
	rm -rf "$tree"
	for dir in bin sbin usr/bin usr/lib/built etc proc sys dev run root tmp var/tmp lib mnt src built/images; do
		mkdir -p "$tree/$dir"
	done
	chmod 1777 "$tree/tmp" "$tree/var/tmp"
	userland
	cp "$busybox" "$tree/bin/"
	/bin/busybox --list | while read -r name; do
		[ -e "$tree/bin/$name" ] || [ -e "$tree/usr/bin/$name" ] || [ -e "$tree/usr/sbin/$name" ] || ln -s busybox "$tree/bin/$name"
	done
	ln -sf ../bin/busybox "$tree/sbin/modprobe" # where the kernel looks for it
	[ -z "$release" ] || cp -r "$vm/kernel/lib/modules" "$tree/lib/"
	echo 'root:x:0:0:root:/root:/bin/sh' >"$tree/etc/passwd"
	echo 'root:x:0:' >"$tree/etc/group"
	echo 'nameserver 192.0.2.1' >"$tree/etc/resolv.conf" # of documentation (RFC 5737): the machine has no network
	cp "$here/init.sh" "$tree/init"
	echo "$limit" >"$tree/limit"
}

# project puts the sources and what has been built of them into the tree.
project() {
	tar -C "$top" -c --exclude=./.git --exclude=./bin --exclude=./build/out . | tar -C "$tree/src" -x
	products
	cp "$here/built.sh" "$tree/usr/bin/gcc"
	cp "$here/built.sh" "$tree/usr/bin/go"
	"$cc" -static -pthread -O1 -o "$tree/usr/lib/built/calls" "$top/container/testdata/calls.c"
	build usr/lib/built/fakestager ./launcher/testdata/fakestager
	build usr/lib/built/actool github.com/appc/spec/actool
	build usr/lib/built/testdriver ./netplugins/remote/testdriver
	build usr/lib/built/cnitool github.com/containernetworking/cni/cnitool
	build usr/lib/built/noop github.com/containernetworking/cni/plugins/test/noop
}

# demo makes tests/demo.sh a suite of one test.
demo() {
	# shellcheck disable=SC2016 # for the machine's shell
	printf '#!/bin/sh\n/src/tests/demo.sh "$STAGER_BIN" "$STAGER_ACI" "$STAGER_IMAGES" && echo "--- PASS: demo"\n' >"$tree/src/tests/suite.test"
	chmod 0755 "$tree/src/tests/suite.test"
}

# tests builds the chosen suites, and writes the list that the machine's init reads.
tests() {
	all=$(suites)
	for chosen in "$@"; do
		name=${chosen%%=*} pattern=.
		[ "$name" = "$chosen" ] || pattern=${chosen#*=}
		package=$(echo "$all" | sed -n "s,^$name  *,,p")
		[ -n "$package" ] || die "no suite $name"
		if [ "$name" = demo ]; then demo; else build "src/$package/suite.test" "./$package" test -c; fi
		without=$(exceptions | sed -n "s,^$name \([^ ]*\) .*,\1,p" | tr '\n' '|')
		echo "$name $package $pattern ^(${without%|})\$" >>"$tree/suites"
	done
}

disk() {
	rm -f "$vm/disk"
	mke2fs -q -t ext4 -O ^has_journal -E root_owner=0:0 -d "$tree" "$vm/disk" 3G
	rm -rf "$tree"
}

# boot runs the machine to its end, and leaves the disk as it was. The machine's console is printed
# here as well, without signs of life, the starts of tests and those that have passed.
boot() {
	: >"$vm/console"
	# shellcheck disable=SC2086 # a list of options
	timeout --foreground "$patience" $emulator -smp 2 \
		-nodefaults -no-reboot -display none -serial stdio -pidfile "$vm/pid" \
		-kernel "$image" -initrd "$vm/initrd" \
		-snapshot -drive "file=$vm/disk,format=raw,if=virtio,cache=unsafe" \
		-append "console=$console quiet loglevel=3 oops=panic panic=-1 ${VMAPPEND:-}" \
		</dev/null | sed -u 's,\r,,g' | tee "$vm/console" | sed -u '/^ *--- PASS/d; /^=== /d; /^alive$/d' &
	machine=$!
	while kill -0 $machine 2>/dev/null; do
		sleep 5
		[ $(($(date +%s) - $(stat -c %Y "$vm/console"))) -lt "$silence" ] || kill -KILL "$(cat "$vm/pid")" 2>/dev/null || true
	done
	wait $machine
}

# stopped succeeds if the machine has stopped by itself, with all that ran in it: its init prints a
# sign of life every ten seconds.
stopped() {
	! grep -q 'reboot: Power down\|Kernel panic' "$vm/console" &&
		[ $(($(date +%s) - $(stat -c %Y "$vm/console"))) -ge "$silence" ]
}

# running SUITE prints the tests of the suite that had begun and had not ended when the console ended.
# Go reports the ends of subtests with that of their test; a subtest that is not parallel has ended
# when its test begins the next one.
running() {
	awk -v suite="$1" '
		function over(test,  other) {
			for (other in state) if (index(other, test "/") == 1) delete state[other]
			delete state[test]
		}
		$1 == "==" { here = $2 == suite }
		$1 == "VM:" { here = 0 }
		!here { next }
		$1 == "===" && $2 == "RUN" {
			of = ""
			for (test in state) if (index($3, test "/") == 1 && length(test) > length(of)) of = test
			for (test in state) if (test in state && state[test] == "RUN" && parent[test] == of) over(test)
			parent[$3] = of
			order[++count] = $3
		}
		$1 == "===" && $2 ~ /^(RUN|PAUSE|CONT)$/ { state[$3] = $2 }
		$1 == "---" { over($3) }
		END { for (i = 1; i <= count; i++) if (order[i] in state && state[order[i]] != "PAUSE") printf " %s", order[i] }
	' "$vm/console"
}

# failure SUITE says why the suite has not passed.
failure() {
	if grep -q "^VM: $1 failed: " "$vm/console"; then
		echo "vm: $1 failed"
	elif ! grep -q "^== $1\$" "$vm/console"; then
		echo "vm: $1 had not begun when the machine stopped, after $patience s at the latest"
	else
		echo "vm: $1 had not ended when the machine stopped, after $patience s at the latest; running:$(running "$1")"
	fi
}

# verdict fails unless every suite has passed.
verdict() {
	exceptions | sed -n 's/^\([^ ]*\) all /vm: \1 is left out: /p'
	for chosen in "$@"; do
		exceptions | sed -n "s,^${chosen%%=*} \([^ ]*\) ,vm: ${chosen%%=*} is without \1: ,p"
	done
	[ -z "${VMFILESYSTEM:-}" ] || grep -q "^kernel .*; file systems .* $VMFILESYSTEM .*;" "$vm/console" ||
		die "the kernel does not have $VMFILESYSTEM"
	reasons=$(for chosen in "$@"; do
		grep -q "^VM: ${chosen%%=*} passed: " "$vm/console" || failure "${chosen%%=*}"
	done)
	[ -n "$reasons" ] || return 0
	{
		echo "vm: the last lines of $vm/console:"
		sed "/^alive$/d" "$vm/console" | tail -n 40
		echo "$reasons"
	} >&2
	exit 1
}

# shellcheck disable=SC2046 # a list of names
[ $# -gt 0 ] || set -- $(suites | sed 's/ .*//')
boots
initrd
system
project
tests "$@"
disk
boot
if stopped; then
	# The emulator, or the kernel on it, has hung. No test can be told from another then.
	echo "vm: the machine has stopped as a whole while these ran:$(running "$(sed -n 's/^== //p' "$vm/console" | tail -n 1)"); it boots again" >&2
	boot
fi
verdict "$@"

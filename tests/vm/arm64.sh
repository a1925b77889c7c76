# shellcheck shell=sh disable=SC2034,SC2154 # variables of run.sh, which includes this file
# The emulated machine for arm64: Debian's cloud kernel and programs for arm64. The programs, the
# stager image and the NATS image are built for it here. It needs bin/aci.

debian=$vm/debian
emulator='qemu-system-aarch64 -M virt -accel tcg,thread=multi -cpu cortex-a72 -m 3072'
console=ttyAMA0
busybox=$debian/bin/busybox
cc=aarch64-linux-gnu-gcc
cross="GOARCH=arm64 CC=$cc PKG_CONFIG_LIBDIR=$debian/usr/lib/aarch64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$debian"
patience=14400
limit=60

# The suites: the demonstration, which starts a pod, then the unit tests of each package of stager and launcher.
suites() {
	echo 'demo tests'
	without=$(exceptions | sed -n 's/^\([^ ]*\) all .*/\1/p')
	go list -C "$top" -tags 'seccomp netgo osusergo' -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... |
		sed -n 's,^kurma.io/stager/\(.*\),\1,p' | grep -v -x -F "$without" | grep -v '^cri/' | sed 's/.*/& &/'
}

# What cannot run in the machine: the suite, the test or "all", and why.
exceptions() {
	cat <<-'END'
		launcher/images TestHostileArchivesTakeLittle its limits of CPU are not for an emulator, in which system calls cost more than computing
		launcher/tests all its pods are of programs for amd64, as those of tests are
		tests all its pods are of programs for amd64; the demonstration starts a pod instead
		tests/clauses all it reads the packages with Go, which the machine does not have
		tests/docs all it builds Debian packages of a release
		tests/fork all it builds a fork with Go, which the machine does not have
		tests/house all it reads the packages with Go, which the machine does not have
		tests/release all it builds Debian packages of a release
	END
}

# kernel unpacks Debian's kernel, the programs and libseccomp for arm64 into $debian, and prints the
# kernel's release. No script of a package runs.
kernel() {
	if [ ! -e "$debian/complete" ]; then
		rm -rf "$debian"
		mmdebstrap --quiet --variant=extract --architectures=arm64 --format=directory \
			--include='?essential' --include='busybox-static,iproute2,procps,gnupg,xz-utils,bzip2,systemd,apparmor,umoci,buildah,skopeo,docker-registry,fuse-overlayfs,libseccomp-dev,linux-image-cloud-arm64' \
			bookworm "$debian" "${MIRROR:-http://deb.debian.org/debian}" >&2
		touch "$debian/complete"
	fi
	release=$(ls "$debian/lib/modules")
	mkdir -p "$vm/kernel/boot"
	cp "$debian/boot/vmlinuz-$release" "$vm/kernel/boot/"
	rm -rf "$vm/kernel/lib"
	mkdir "$vm/kernel/lib"
	cp -r "$debian/lib/modules" "$vm/kernel/lib/"
	/bin/busybox depmod -b "$vm/kernel" "$release"
	echo "$release"
}

# userland fills the tree with a Debian whose packages are unpacked.
userland() {
	tar -C "$debian" -c --exclude=./boot --exclude=./lib/modules --exclude=./usr/share/doc --exclude=./usr/share/man \
		--exclude=./usr/share/locale --exclude=./var . | tar -C "$tree" -x
}

# products builds the programs and images for the machine, and puts them into $tree/built.
products() {
	built=$vm/built
	mkdir -p "$built"
	version=$("$top/bin/launcher" --version | sed 's/.* //')
	make -s -C "$top" build BIN="$built" ARCH=arm64 CROSS="$cross" VERSION="$version" >&2
	rm -f "$built"/*.aci*
	"$top/bin/aci" build --manifest "$top/aci-manifest.json" --stager "$built/stager" --arch arm64 --version "$version" -o "$built/stager.aci"
	GOARCH=arm64 "$top/tests/images/build.sh" "$built/images" nats
	cp "$built/launcher" "$built/stager" "$built"/stager.aci* "$tree/built/"
	cp -r "$built/images/pods" "$built"/images/*.aci "$built"/images/*.id "$built/images/natstalk" "$tree/built/images/"
}

#!/bin/sh
# Usage: tools/kernel.sh FOLDER
# Unpacks Debian's cloud kernel for amd64 into FOLDER, unless it is already there, and
# prints its release. FOLDER then has boot/vmlinuz-RELEASE and lib/modules/RELEASE.
set -eu
umask 022

folder=$1

die() {
	echo "kernel: $*" >&2
	exit 1
}

name() {
	apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^  Depends: \(linux-image-[^ ]*\)$/\1/p'
}

download() { (cd "$folder" && apt-get download -q -q -o APT::Sandbox::User=root "$package") >&2; }

# lookup looks for the package's name in the machine's lists, which may be old.
lookup() {
	package=$(name)
	release=${package#linux-image-}
}

lookup
if [ -z "$package" ] && command -v apt-get >/dev/null; then
	apt-get update -q >&2
	lookup
fi
[ -n "$package" ] || die "there is no package linux-image-cloud-amd64 here: this needs Debian on amd64"
if [ ! -e "$folder/$release" ]; then
	rm -rf "$folder"
	mkdir -p "$folder"
	download || { apt-get update -q >&2 && lookup && download; } || die "cannot download Debian's package $package"
	dpkg-deb -x "$folder/$package"_*.deb "$folder"
	rm "$folder/$package"_*.deb
	/bin/busybox depmod -b "$folder" "$release"
	touch "$folder/$release"
fi
echo "$release"

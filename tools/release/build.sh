#!/bin/sh
# Usage: tools/release/build.sh programs OUT
#        tools/release/build.sh packages OUT
# The two steps of a release in its clean root, see tools/release/release.sh: what needs no signature,
# and what contains the images' signatures. Without an image of an architecture in OUT, the second
# step makes no packages for it.
set -eu

step=$1 out=$2
top=$(cd "$(dirname "$0")/../.." && pwd)
cd "$top"
export SOURCE_DATE_EPOCH VERSION
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

# installed PACKAGE prints a Debian package's version.
installed() { dpkg-query -W -f '${Version}' "$1"; }

# library NAME PACKAGE ARCH prints bom's option for a C library. Debian's copyright file refers to the texts of the licences that Debian has once.
library() {
	case $1 in
	libseccomp) licence=LGPL-2.1-only text=LGPL-2.1 ;;
	glibc) licence=LGPL-2.1-or-later text=LGPL-2.1 ;;
	libgcc) licence='GPL-3.0-or-later WITH GCC-exception-3.1' text=GPL-3 ;;
	esac
	files=/usr/share/doc/${2%%:*}/copyright:/usr/share/common-licenses/$text
	echo "--c=$1=$(installed "$2")=pkg:deb/debian/${2%%:*}@$(installed "$2")?arch%3D$3=$licence=$files"
}

libraries() {
	case $1 in
	amd64) library libseccomp libseccomp-dev:amd64 amd64 && library glibc libc6-dev:amd64 amd64 && library libgcc libgcc-12-dev:amd64 amd64 ;;
	arm64) library libseccomp libseccomp-dev:arm64 arm64 && library glibc libc6-dev-arm64-cross all && library libgcc libgcc-12-dev-arm64-cross all ;;
	esac
}

# bill PROGRAM ARCH [LIBRARY...] writes a program's bill of materials and collects the licences.
bill() {
	program=$1 arch=$2
	shift 2
	"$work/bom" --version "$VERSION" --epoch "$SOURCE_DATE_EPOCH" --modules "$(go env GOMODCACHE)" --goroot "$(go env GOROOT)" "$@" \
		--licenses "$work/licenses" -o "$out/$program-$VERSION-linux-$arch.cdx.json" "$work/$arch/$program"
}

programs() {
	go build -C tools/release -trimpath -buildvcs=false -o "$work/bom" ./bom
	for arch in amd64 arm64; do
		make -s build BIN="$work/$arch" ARCH="$arch" VERSION="$VERSION"
		for program in launcher aci; do
			cp "$work/$arch/$program" "$out/$program-$VERSION-linux-$arch"
			bill "$program" "$arch"
		done
		IFS='
'
		# shellcheck disable=SC2046 # a list of options, one a line
		bill stager "$arch" $(libraries "$arch")
		unset IFS
	done
	for arch in amd64 arm64; do
		"$work/amd64/aci" build --manifest aci-manifest.json --stager "$work/$arch/stager" --arch "$arch" \
			--version "$VERSION" --unsigned -o "$out/stager-$VERSION-linux-$arch.aci"
	done
	plugins
	mkdir -p "$work/licenses/stager@$VERSION"
	cp LICENSE "$work/licenses/stager@$VERSION/"
	tar -C "$work/licenses" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=gnu -c . |
		gzip -9 -n >"$out/licenses-$VERSION.tar.gz"
	buildinfo
}

# plugins makes the images of the network plugins that consist of their program.
plugins() {
	for arch in amd64 arm64; do
		for name in lo remote sample; do
			ACI=$work/amd64/aci ARCH=$arch netplugins/build.sh "$work/$arch" "$VERSION" "$name"
			mv "$work/$arch/$name-netplugin.aci" "$out/$name-netplugin-$VERSION-linux-$arch.aci"
			mkdir "$work/$arch/$name"
			"$work/amd64/aci" extract "$out/$name-netplugin-$VERSION-linux-$arch.aci" "$work/$arch/$name/image"
			mv "$work/$arch/$name/image/rootfs/opt/network/setup" "$work/$arch/$name-netplugin"
			bill "$name-netplugin" "$arch"
		done
	done
}

# buildinfo lists what the bytes depend on beside the sources.
buildinfo() {
	{
		echo "version: $VERSION"
		echo "source-date-epoch: $SOURCE_DATE_EPOCH"
		go version
		dpkg-query -W -f '${Package}:${Architecture} ${Version}\n' | LC_ALL=C sort
	} >"$out/BUILDINFO"
}

packages() {
	for arch in amd64 arm64; do
		[ -e "$out/stager-$VERSION-linux-$arch.aci" ] || continue
		tools/release/debian/package.sh stager "$out" "$arch"
		tools/release/debian/package.sh kurma-launcher "$out" "$arch"
	done
}

"$step"

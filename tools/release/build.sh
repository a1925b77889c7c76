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

# foreign has Debian's programs of arm64, and a list of their packages, see release.sh.
foreign=/arm64

# installed PACKAGE:ARCH prints a Debian package's version.
installed() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null || sed -n "s/^${1%:*}[[:space:]]//p" "$foreign/packages"; }

# library NAME PACKAGE ARCH prints bom's option for a C library, or for a package whose files are in an image. Debian's copyright
# file refers to the texts of the licences that Debian has once.
library() {
	case $1 in
	libseccomp) licence=LGPL-2.1-only text=LGPL-2.1 ;;
	glibc) licence=LGPL-2.1-or-later text=LGPL-2.1 ;;
	libgcc) licence='GPL-3.0-or-later WITH GCC-exception-3.1' text=GPL-3 ;;
	iptables | libxtables12 | nftables | libnftables1 | libnftnl11) licence='GPL-2.0-only AND GPL-2.0-or-later' text=GPL-2 ;;
	libnetfilter-conntrack3 | libnfnetlink0) licence=GPL-2.0-or-later text=GPL-2 ;;
	libmnl0) licence=LGPL-2.1-or-later text=LGPL-2.1 ;;
	libgmp10) licence='GPL-2.0-or-later OR LGPL-3.0-or-later' text=LGPL-3 ;;
	libedit2) licence=BSD-3-Clause text= ;;
	libjansson4) licence=MIT text= ;;
	libtinfo6) licence=X11 text= ;;
	libbsd0) licence='BSD-2-Clause AND BSD-3-Clause AND ISC AND MIT' text= ;;
	libmd0) licence='BSD-2-Clause AND BSD-3-Clause AND Beerware AND ISC' text= ;;
	*)
		echo "release: the licence of $1 is not known" >&2
		exit 1
		;;
	esac
	files=/usr/share/doc/${2%%:*}/copyright${text:+:/usr/share/common-licenses/$text}
	echo "--c=$1=$(installed "$2")=pkg:deb/debian/${2%%:*}@$(installed "$2")?arch%3D$3=$licence=$files"
}

libraries() {
	case $1 in
	amd64) library libseccomp libseccomp-dev:amd64 amd64 && library glibc libc6-dev:amd64 amd64 && library libgcc libgcc-12-dev:amd64 amd64 ;;
	arm64) library libseccomp libseccomp-dev:arm64 arm64 && library glibc libc6-dev-arm64-cross all && library libgcc libgcc-12-dev-arm64-cross all ;;
	esac
}

# owners ROOT ARCH lists the Debian packages whose files an image has.
owners() {
	(cd "$1" && find . -path ./opt -prune -o -type f -print) | while read -r path; do
		case $path in
		*/xtables/* | */xtables-nft-multi) echo iptables ;;
		*/nft) echo nftables ;;
		*) dpkg-query -S "*/${path##*/}" | sed -n "s/:$2: .*//p" ;;
		esac
	done | LC_ALL=C sort -u
}

# shipped ROOT ARCH prints bom's options for these packages.
shipped() {
	for package in $(owners "$1" "$2"); do
		case $package in
		libc6) library glibc "libc6:$2" "$2" ;;
		*) library "$package" "$package:$2" "$2" ;;
		esac
	done
}

# bill PROGRAM ARCH [OPTION...] writes a program's bill of materials and collects the licences. $bundled are further programs
# that are shipped with it.
bill() {
	program=$1 arch=$2
	shift 2
	# shellcheck disable=SC2086 # a list of files without spaces
	"$work/bom" --version "$VERSION" --epoch "$SOURCE_DATE_EPOCH" --modules "$(go env GOMODCACHE)" --goroot "$(go env GOROOT)" "$@" \
		--licenses "$work/licenses" -o "$out/$program-$VERSION-linux-$arch.cdx.json" "$work/$arch/$program" ${bundled:-}
}

programs() {
	go build -C tools/release -trimpath -buildvcs=false -o "$work/bom" ./bom
	for arch in amd64 arm64; do
		make -s build BIN="$work/$arch" ARCH="$arch" VERSION="$VERSION"
		for program in launcher aci kurma-cri; do
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

# plugins makes the images of the network plugins.
plugins() {
	for arch in amd64 arm64; do
		debian=
		[ "$arch" = amd64 ] || debian=$foreign
		for name in lo cni remote sample; do
			image=$out/$name-netplugin-$VERSION-linux-$arch.aci
			ACI=$work/amd64/aci ARCH=$arch DEBIAN=$debian netplugins/build.sh "$work/$arch" "$VERSION" "$name"
			mv "$work/$arch/$name-netplugin.aci" "$image"
			mkdir "$work/$arch/$name"
			"$work/amd64/aci" extract "$image" "$work/$arch/$name/image"
			root=$work/$arch/$name/image/rootfs
			mv "$root/opt/network/setup" "$work/$arch/$name-netplugin"
			bundled=$(find "$root/opt" -path '*/cni/bin/*' | LC_ALL=C sort)
			IFS='
'
			# shellcheck disable=SC2046 # a list of options, one a line
			bill "$name-netplugin" "$arch" $(shipped "$root" "$arch")
			unset IFS bundled
		done
	done
}

# buildinfo lists what the bytes depend on beside the sources.
buildinfo() {
	{
		echo "version: $VERSION"
		echo "source-date-epoch: $SOURCE_DATE_EPOCH"
		go version
		{
			dpkg-query -W -f '${Package}:${Architecture} ${Version}\n'
			sed 's/[[:space:]]/:arm64 /' "$foreign/packages"
		} | LC_ALL=C sort
	} >"$out/BUILDINFO"
}

packages() {
	for arch in amd64 arm64; do
		[ -e "$out/stager-$VERSION-linux-$arch.aci" ] || continue
		tools/release/debian/package.sh stager "$out" "$arch"
		tools/release/debian/package.sh kurma-launcher "$out" "$arch"
		tools/release/debian/package.sh kurma-netplugins "$out" "$arch"
		tools/release/debian/package.sh kurma-cri "$out" "$arch"
	done
}

"$step"

#!/bin/sh
# Usage: tools/release/release.sh DIST
# Builds the release into the folder DIST: the programs, the images of stager and network plugins,
# their bills of materials, the licences of all that is linked, the Debian packages, the signatures, and
# SHA512SUMS. It needs Debian on amd64, root, Go, lintian and mmdebstrap.
#
# The build runs in a clean Debian root without network, in which Go and its modules come from this
# machine. The same sources, Go and Debian packages give the same bytes, but for the signatures;
# BUILDINFO in DIST names Go and the packages. The environment:
#
# VERSION            tools/version.sh
# SOURCE_DATE_EPOCH  the time that files have, in seconds; the commit's
# KEY=FILE           signs with this private key
# GPG=ID             signs with this key in the user's gpg agent
# SIGNATURES=DIST    takes the signatures and the public key of this release instead of signing,
#                    to build it again. A signature that does not fit what was built is an error.
#                    Without these three a throwaway key signs.
# MIRROR, SUITE      where the root's packages come from: http://deb.debian.org/debian, bookworm
# ROOT=FILE.tar      the root is this archive, made if it does not exist
# BUILD_FOLDER, BUILD_USER, BUILD_UMASK, BUILD_TZ, BUILD_LOCALE
#                    what the build sees, for tools/release/reproducible.sh, and nothing depends on
set -eu
umask 022

top=$(cd "$(dirname "$0")/../.." && pwd)
version=${VERSION:-$("$top/tools/version.sh")}
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)} || {
	echo 'release: this is not a git repository: set SOURCE_DATE_EPOCH' >&2
	exit 1
}
mkdir -p "$1" "$top/build/out"
dist=$(cd "$1" && pwd)
archive=${ROOT:-$top/build/out/release-root.tar}
work=$(mktemp -d) # outside of the tree: Go finds modules in it
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it
root=$work/root
folder=${BUILD_FOLDER:-/build}
user=${BUILD_USER:-root:0} # NAME:ID

# foreign is a hook of mmdebstrap that unpacks arm64's programs of the CNI plugins' image into /arm64: those of amd64, which run,
# have the same paths.
# shellcheck disable=SC2016 # the hook's own variables
foreign='mkdir "$1/arm64" && cd "$1/arm64" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -qq -o APT::Sandbox::User=root download iptables:arm64 nftables:arm64 &&
	for deb in *.deb; do dpkg-deb -x "$deb" . && dpkg-deb -W "$deb" >>packages; done && rm ./*.deb'

# clean_root unpacks the root, and makes it before if need be.
clean_root() {
	if [ ! -e "$archive" ]; then
		echo "release: making a Debian root" >&2
		mmdebstrap --quiet --variant=essential --architectures=amd64,arm64 \
			--include=gcc,libc6-dev,pkg-config,libseccomp-dev,gcc-aarch64-linux-gnu,libc6-dev-arm64-cross,libseccomp-dev:arm64,make,xz-utils,perl-base \
			--include=iptables,nftables,libxtables12:arm64,libnftables1:arm64,libedit2:arm64,libnetfilter-conntrack3:arm64 \
			--customize-hook="$foreign" \
			"${SUITE:-bookworm}" - "${MIRROR:-http://deb.debian.org/debian}" >"$archive.new"
		mv "$archive.new" "$archive"
	fi
	mkdir "$root"
	tar -x -f "$archive" -C "$root"
	mkdir -p "$root/usr/local/go" "$root/modules" "$root$folder/out"
	[ "$user" = root:0 ] || echo "${user%:*}:x:${user#*:}:${user#*:}::$folder:/bin/sh" >>"$root/etc/passwd"
}

# sources copies the tree, and has Go fetch the modules that the build needs.
sources() {
	mkdir "$root$folder/source"
	if [ -e "$top/.git" ]; then
		(cd "$top" && git ls-files -z | tar -c --null --ignore-failed-read -T -) | tar -x -C "$root$folder/source"
	else
		tar -C "$top" -c --exclude=./bin --exclude=./build/out --exclude=./dist . | tar -x -C "$root$folder/source"
	fi
	for module in . netplugins tools/release; do go mod download -C "$top/$module"; done
	chown -R "${user#*:}" "$root$folder"
}

# inside runs a step of tools/release/build.sh in the root, without network and with an environment of
# its own.
inside() {
	unshare --mount --net --pid --ipc --uts --fork --kill-child sh -eu -c '
		root=$1 id=$2
		shift 2
		mount --bind -o ro "$(go env GOROOT)" "$root/usr/local/go"
		mount --bind -o ro "$(go env GOMODCACHE)/cache/download" "$root/modules"
		mount -t proc proc "$root/proc"
		exec chroot --userspec="$id:$id" "$root" /usr/bin/env -i "$@"
	' inside "$root" "${user#*:}" \
		PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$folder" TMPDIR=/tmp \
		TZ="${BUILD_TZ:-UTC}" LC_ALL="${BUILD_LOCALE:-C}" VERSION="$version" SOURCE_DATE_EPOCH="$epoch" \
		GOPROXY=file:///modules GOSUMDB=off GOTOOLCHAIN=local \
		/bin/sh -eu -c 'umask "$1" && cd "$2/source" && exec tools/release/build.sh "$3" "$2/out"' build "${BUILD_UMASK:-022}" "$folder" "$1"
}

# signatures signs the images, or takes the signatures of another build of this release.
signatures() {
	if [ -n "${SIGNATURES:-}" ]; then
		cp "$SIGNATURES"/*.asc "$out/"
	elif [ -n "${GPG:-}" ]; then
		gpg --batch --armor --export "$GPG" >"$out/stager-key.asc"
		"$aci" sign --gpg "$GPG" "$out"/*.aci
	else
		key=${KEY:-$work/key}
		[ -n "${KEY:-}" ] || "$aci" key --new "throwaway key of stager $version" -o "$key"
		"$aci" key --public "$key" -o "$out/stager-key.asc"
		"$aci" sign --key "$key" "$out"/*.aci
	fi
	"$aci" verify --key "$out/stager-key.asc" "$out"/*.aci >&2
}

# checks has lintian look for errors in the packages.
checks() { lintian --allow-root --fail-on error "$out"/*.deb >&2; }

# sums writes the list of all files but the signatures, and signs it.
sums() {
	(cd "$out" && find . -type f ! -name '*.asc' ! -name SHA512SUMS | sed 's,^\./,,' | LC_ALL=C sort | xargs sha512sum >SHA512SUMS)
	if [ -n "${SIGNATURES:-}" ]; then
		:
	elif [ -n "${GPG:-}" ]; then
		"$aci" sign --gpg "$GPG" "$out/SHA512SUMS"
	else
		"$aci" sign --key "$key" "$out/SHA512SUMS"
	fi
	"$aci" verify --key "$out/stager-key.asc" "$out/SHA512SUMS" >&2
}

clean_root
sources
out=$root$folder/out
inside programs
aci=$out/aci-$version-linux-amd64
signatures
inside packages
checks
sums
rm -rf "${dist:?}"/*
cp "$out"/* "$dist/"
chmod 0644 "$dist"/*
chmod 0755 "$dist"/launcher-*-linux-* "$dist"/aci-*-linux-* "$dist"/kurma-cri-*-linux-*
chmod 0644 "$dist"/*.json
"$top/tools/release/summary.sh" "$dist"

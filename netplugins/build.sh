#!/bin/sh
# Usage: netplugins/build.sh OUT VERSION [NAME...]
# Makes the images of network plugins: OUT/NAME-netplugin.aci, of the folders NAME here, or of all folders that have an
# image.json. The images are not signed, see tools/sign.sh. The script does not make an image again that is of the same
# architecture and newer than this folder. The environment:
#
# ARCH    the architecture, by Go's name; this machine's
# ACI     the program aci; bin/aci
# DEBIAN  a folder with Debian's programs of ARCH, if that is not this machine's; their libraries are in /lib/TRIPLET here
#
# An image has the program NAME as /opt/network/setup, add and del. If the folder has a
# recipe.sh, this shell executes it with $root, the image's root, and the functions below.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
aci=${ACI:-$here/../bin/aci}
arch=${ARCH:-$(go env GOARCH)}
case $arch in # appc's name, and Debian's for the folders of libraries
arm64) label=aarch64 triplet=aarch64-linux-gnu ;;
*) label=$arch triplet=x86_64-linux-gnu ;;
esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
version=$2
shift 2
[ $# -gt 0 ] || set -- $(cd "$here" && ls -d */image.json | xargs -n 1 dirname)
work=$(mktemp -d "$out/netplugins-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

# go_programs TARGET PACKAGE... builds static programs from this folder's module: a file, or those
# of several packages in the folder TARGET/.
go_programs() {
	target=$1
	shift
	mkdir -p "${target%/*}"
	CGO_ENABLED=0 GOARCH=$arch go build -C "$here" -trimpath -buildvcs=false -tags 'netgo osusergo' -ldflags '-s -w' -o "$target" "$@"
}

# take_program PATH... copies Debian's programs, with the loader and the libraries that they need.
take_program() {
	for path in "$@"; do
		[ ! -e "$root$path" ] || continue
		take "$path"
		readelf -d -l "$root$path" | sed -n -e 's,.*(NEEDED).*\[\(.*\)\]$,/lib/'"$triplet"'/\1,p' -e 's,.*program interpreter: \(.*\)\]$,\1,p' | while read -r library; do
			case $library in
			"/lib/$triplet/ld-linux"*) ;; # the loader, which has a path of its own
			*) take_program "$library" ;;
			esac
		done
	done
}

# take FILE copies a file, what a link leads to, to the same place in the image.
take() {
	mkdir -p "$root$(dirname "$1")"
	for file in "${DEBIAN:-}$1" "$1" "/usr$1"; do
		[ ! -e "$file" ] || break
	done
	cp -L "$file" "$root$1"
}

for name in "$@"; do
	image=$out/$name-netplugin.aci
	if [ -e "$image" ] && [ -z "$(find "$here" -newer "$image")" ] && "$aci" inspect --json "$image" | grep -qF "\"arch\":\"$label\""; then
		continue
	fi
	root=$work/$name
	mkdir -p "$root/opt/network" "$root/run/network" "$root/var/lib/network" "$root/tmp"
	go_programs "$root/opt/network/setup" "./$name"
	ln -s setup "$root/opt/network/add"
	ln -s setup "$root/opt/network/del"
	# shellcheck source=/dev/null
	[ ! -e "$here/$name/recipe.sh" ] || (. "$here/$name/recipe.sh")
	sed "s/@VERSION@/$version/; s/@ARCH@/$label/" "$here/$name/image.json" >"$work/$name.json"
	"$aci" --manifest "$work/$name.json" --root "$root" -o "$image"
done

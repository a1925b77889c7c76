#!/bin/sh
# Usage: tests/images/build.sh OUT [NAME...]
# Makes App Container images of real programs: OUT/NAME.aci with its image ID in
# OUT/NAME.id, from the recipe NAME/recipe.sh in this folder. Without names it makes
# all images. Then it writes the IDs into the pods of pods/, and writes the pods whose
# images all exist to OUT/pods. It needs root, for the owners of files, and bin/aci.
#
# This shell executes a recipe with $root, an empty folder that becomes the image's
# root, and the functions below. The image's manifest is NAME/manifest.json, or what
# the recipe writes to $manifest.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
aci=$here/../../bin/aci
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- nats busybox redis nginx postgres ace-main ace-sidekick
debs=$out/debs
work=$(mktemp -d "$out/work-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

die() {
	echo "images: $*" >&2
	exit 1
}

# debian PACKAGE... extracts Debian packages and all libraries they depend on
# into $tree, from which take and take_program then copy.
debian() {
	tree=$work/tree-$1
	[ -e "$tree/complete" ] && return
	command -v apt-get >/dev/null || die "$1 comes from Debian's packages, and apt-get is missing here"
	apt-cache show "$@" >/dev/null 2>&1 || apt-get update -q >&2
	rm -rf "$tree"
	mkdir -p "$tree" "$debs"
	packages=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
		--no-replaces --no-enhances "$@" | grep -e '^lib' -e '^zlib' | grep -v -e '^libllvm' -e '^libperl' | sort -u)
	for package in "$@" $packages; do
		set -- "$debs/${package}"_*.deb
		[ -e "$1" ] || download "$package"
		for file in "$debs/${package}"_*.deb; do
			dpkg-deb -x "$file" "$tree"
		done
	done
	touch "$tree/complete"
}

download() {
	(cd "$debs" && apt-get download -q -q -o APT::Sandbox::User=root "$1") ||
		{ apt-get update -q >&2 && (cd "$debs" && apt-get download -q -q -o APT::Sandbox::User=root "$1"); } ||
		die "cannot download Debian's package $1"
}

# take PATH... copies files or folders of the packages to the same place in the image.
take() {
	for path in "$@"; do
		mkdir -p "$root/$(dirname "$path")"
		cp -a "$tree/$path" "$root/$path"
	done
}

# take_program PATH... takes programs, and the loader and libraries they need.
take_program() {
	take "$@"
	loader=$tree/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
	paths=$tree/lib/x86_64-linux-gnu:$tree/usr/lib/x86_64-linux-gnu
	mkdir -p "$root/lib64"
	cp "$loader" "$root/lib64/"
	for path in "$@"; do
		libraries=$("$loader" --inhibit-cache --library-path "$paths" --list "$tree/$path") ||
			die "libraries of $path are missing"
		for library in $(echo "$libraries" | sed -n 's,.* => \(/.*\) (0x.*,\1,p'); do
			within=${library#"$tree"/}
			[ "$within" != "$library" ] || die "$path would take $library from this machine"
			mkdir -p "$root/$(dirname "$within")"
			cp -L "$library" "$root/$within"
		done
	done
}

# busybox puts the static busybox, and its commands as links, into /bin.
busybox() {
	debian busybox-static
	mkdir -p "$root/bin"
	cp "$tree/bin/busybox" "$root/bin/busybox"
	for command in $("$tree/bin/busybox" --list); do
		[ -e "$root/bin/$command" ] || ln -s busybox "$root/bin/$command"
	done
}

# users NAME:ID... makes /etc/passwd and /etc/group with root, nobody and these.
users() {
	mkdir -p "$root/etc"
	for user in root:0 "$@" nobody:65534; do
		echo "${user%:*}:x:${user#*:}:${user#*:}::/:/bin/sh" >>"$root/etc/passwd"
		echo "${user%:*}:x:${user#*:}:" >>"$root/etc/group"
	done
}

# ace_validator NAME makes the image NAME of appc's acceptance program, as the
# specification's own scripts/build-ace-validator-acis does.
ace_validator() {
	spec=$(cd "$here/../.." && go list -m -f '{{.Dir}}' github.com/appc/spec)
	(cd "$here/../.." && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$root/ace-validator" github.com/appc/spec/ace)
	folder 0755 0 opt/acvalidator
	sed -e 's/@ACI_OS@/linux/' -e "s/@ACI_ARCH@/$(go env GOARCH)/" "$spec/ace/image_manifest_$1.json.in" >"$manifest"
}

# folder MODE OWNER PATH makes a folder.
folder() {
	mkdir -p "$root/$3"
	chmod "$1" "$root/$3"
	chown "$2:$2" "$root/$3"
}

[ "$(id -u)" = 0 ] || die "files in images have owners, and only root can set them"
for name in "$@"; do
	recipe=$here/$name
	[ -e "$recipe/recipe.sh" ] || die "no recipe for $name"
	image=$out/$name.aci
	if [ -e "$image" ] && [ -z "$(find "$here/build.sh" "$recipe" -newer "$image")" ]; then
		continue
	fi
	echo "images: $name" >&2
	root=$work/root-$name
	manifest=$work/$name.json
	mkdir "$root"
	[ ! -e "$recipe/manifest.json" ] || cp "$recipe/manifest.json" "$manifest"
	# shellcheck source=/dev/null
	(. "$recipe/recipe.sh")
	# shellcheck disable=SC2086 # two words or none
	"$aci" --manifest "$manifest" ${GOARCH:+--arch $GOARCH} --root "$root" --keep-owners -o "$image.new"
	echo "sha512-$(gzip -dc "$image.new" | sha512sum | cut -d ' ' -f 1)" >"$out/$name.id"
	mv "$image.new" "$image"
done

mkdir -p "$out/pods"
: >"$work/ids.sed"
for id in "$out"/*.id; do
	echo "s/@$(basename "$id" .id)@/$(cat "$id")/" >>"$work/ids.sed"
done
for pod in "$here"/pods/*.json; do
	sed -f "$work/ids.sed" "$pod" >"$work/pod"
	grep -q '@[a-z-]*@' "$work/pod" || cp "$work/pod" "$out/pods/$(basename "$pod")"
done

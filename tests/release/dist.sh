#!/bin/sh
# Usage: tests/release/dist.sh BIN STAGER.aci OUT
# Makes in OUT what a release has for this machine: the programs of BIN, the stager image and the images of network plugins beside
# it, signed with one throwaway key, and the Debian packages. VERSION and SOURCE_DATE_EPOCH are the release's. Bills and licences
# stand in for the release's: each program has the parts of the stager.
set -eu
umask 022

bin=$1 image=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

programs='launcher aci kurma-cri stager'
for program in launcher aci kurma-cri; do cp "$bin/$program" "$out/$program-$VERSION-linux-$arch"; done
cp "$image" "$out/stager-$VERSION-linux-$arch.aci"
for plugin in "${image%/*}"/*-netplugin.aci; do
	name=$(basename "$plugin" .aci)
	cp "$plugin" "$out/$name-$VERSION-linux-$arch.aci"
	programs="$programs $name"
done
"$bin/aci" key --new 'a test' -o "$work/key"
"$bin/aci" key --public "$work/key" -o "$out/stager-key.asc"
"$bin/aci" sign --key "$work/key" "$out"/*.aci

mkdir "$work/licenses"
for part in libseccomp glibc libgcc std; do
	mkdir "$work/licenses/$part@1"
	echo "the licence of $part" >"$work/licenses/$part@1/LICENSE"
done
tar -C "$work/licenses" -c -z -f "$out/licenses-$VERSION.tar.gz" .
for program in $programs; do
	printf '  "metadata": {\n    "component": {\n      "name": "%s",\n      "version": "%s"\n    }\n  },\n  "components": [\n' \
		"$program" "$VERSION" >"$out/$program-$VERSION-linux-$arch.cdx.json"
	for part in libseccomp glibc libgcc std; do
		printf '    {\n      "name": "%s",\n      "version": "1"\n    },\n' "$part"
	done >>"$out/$program-$VERSION-linux-$arch.cdx.json"
done
for package in stager kurma-launcher kurma-netplugins kurma-cri; do "$here/../../tools/release/debian/package.sh" "$package" "$out" "$arch"; done
(cd "$out" && sha512sum aci-* launcher-* kurma-cri-* ./*.aci ./*.deb >SHA512SUMS)
"$bin/aci" sign --key "$work/key" "$out/SHA512SUMS"

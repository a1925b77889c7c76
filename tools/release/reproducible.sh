#!/bin/sh
# Usage: tools/release/reproducible.sh OUT
# Builds the release twice, in clean Debian roots with cold caches, and fails unless all files are
# the same bytes. The builds differ in the source's folder, the folder of the build, the user, the
# umask, the time zone, the locale and the time. The second one takes the signatures of the first:
# only the holder of the key can make them.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
VERSION=${VERSION:-$("$top/tools/version.sh")}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct)}
export VERSION SOURCE_DATE_EPOCH

"$top/tools/release/release.sh" "$out/first"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it
mkdir -p "$copy/another folder/tree"
(cd "$top" && git ls-files -z | tar -c --null --ignore-failed-read -T -) | tar -x -m -C "$copy/another folder/tree"
# The second build is made by the commands of docs/verify.md.
cp -r "$out/first" "$copy/another folder/tree/published"
rm -rf "$out/second"
(
	cd "$copy/another folder/tree"
	commands=$(sed -n '/^```sh rebuild$/,/^```$/{/^```/!p}' docs/verify.md)
	ROOT="${ROOT:-$top/build/out/release-root.tar}" BUILD_FOLDER=/home/other/somewhere-else BUILD_USER=other:4321 BUILD_UMASK=077 \
		BUILD_TZ=Pacific/Kiritimati BUILD_LOCALE=C.UTF-8 sh -eux -c "$commands"
)
mv "$copy/another folder/tree/dist" "$out/second"
diff -r "$out/first" "$out/second" || {
	echo 'reproducible: the two builds differ' >&2
	exit 1
}
(cd "$out/second" && sha512sum -c --quiet SHA512SUMS)
echo "reproducible: $(ls "$out/first" | wc -l) files are the same bytes in both builds"

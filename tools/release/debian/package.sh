#!/bin/sh
# Usage: tools/release/debian/package.sh PACKAGE OUT ARCH
# Makes the Debian package "stager" or "kurma-launcher" of a release from the files in OUT, and
# writes it there. It needs VERSION and SOURCE_DATE_EPOCH, and of OUT the licences, and the stager image with its
# signature and key, or launcher and aci of ARCH; those that this machine can execute make the
# man pages and the shells' completions. The same files give the same bytes.
set -eu
umask 022

package=$1 out=$(cd "$2" && pwd) arch=$3
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

# Debian takes what follows the last hyphen for its own revision.
version=$(echo "$VERSION" | sed 's/-rc/~rc/; s/-/+/; s/-/./g')

# put MODE SOURCE TARGET puts a file into the package.
put() { install -D -m "$1" "$2" "$tree/$3"; }

# zip MODE SOURCE TARGET compresses it as well.
zip() {
	mkdir -p "$(dirname "$tree/$3")"
	gzip -9 -n -c "$2" >"$tree/$3"
	chmod "$1" "$tree/$3"
}

stager() {
	image=stager-$VERSION-linux-$arch.aci
	put 644 "$out/$image" usr/share/kurma/stager.aci
	put 644 "$out/$image.asc" usr/share/kurma/stager.aci.asc
	put 644 "$out/stager-key.asc" usr/share/kurma/stager-key.asc
	put 644 "$top/stager/CONFIG.md" usr/share/doc/stager/CONFIG.md
}

kurma_launcher() {
	put 755 "$out/launcher-$VERSION-linux-$arch" usr/bin/launcher
	put 755 "$out/aci-$VERSION-linux-$arch" usr/bin/aci
	put 644 "$here/kurma-launcher/kurmad.json" etc/kurma/kurmad.json
	put 644 "$here/kurma-launcher/kurma-pod@.service" usr/lib/systemd/system/kurma-pod@.service
	put 644 "$top/launcher/README.md" usr/share/doc/kurma-launcher/README.md
	put 644 "$top/docs/launcher.md" usr/share/doc/kurma-launcher/launcher.md
	mkdir -p "$tree/etc/kurma/pods"
	here_launcher=$out/launcher-$VERSION-linux-$(dpkg --print-architecture)
	"$here_launcher" man "$tree/man"
	"$out/aci-$VERSION-linux-$(dpkg --print-architecture)" man >"$tree/man/aci.1"
	for page in "$tree"/man/*; do
		zip 644 "$page" "usr/share/man/man${page##*.}/$(basename "$page").gz"
	done
	rm -r "$tree/man"
	for shell in bash zsh fish; do "$here_launcher" completion $shell >"$tree/$shell"; done
	put 644 "$tree/bash" usr/share/bash-completion/completions/launcher
	put 644 "$tree/zsh" usr/share/zsh/vendor-completions/_launcher
	put 644 "$tree/fish" usr/share/fish/vendor_completions.d/launcher.fish
	rm "$tree/bash" "$tree/zsh" "$tree/fish"
}

# documents are what every package of Debian has.
documents() {
	put 644 "$here/copyright" "usr/share/doc/$package/copyright"
	put 644 "$out/licenses-$VERSION.tar.gz" "usr/share/doc/$package/licenses.tar.gz"
	[ ! -e "$here/$package/lintian-overrides" ] || put 644 "$here/$package/lintian-overrides" "usr/share/lintian/overrides/$package"
	{
		echo "$package ($version) stable; urgency=medium"
		echo
		echo '  * This release, see CHANGELOG.md in its sources.'
		echo
		echo " -- $(sed -n 's/^Maintainer: //p' "$here/$package/control")  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
	} >"$tree/changelog"
	zip 644 "$tree/changelog" "usr/share/doc/$package/changelog.gz"
	rm "$tree/changelog"
}

# control writes what dpkg reads: the description, the scripts, the configuration files, and the sums.
control() {
	size=$(du -k -s --apparent-size "$tree" | cut -f 1)
	mkdir "$tree/DEBIAN"
	sed -e "s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@SIZE@/$size/" "$here/$package/control" >"$tree/DEBIAN/control"
	for script in postinst prerm postrm; do
		[ ! -e "$here/$package/$script" ] || put 755 "$here/$package/$script" "DEBIAN/$script"
	done
	(cd "$tree" && find etc -type f 2>/dev/null | sed 's,^,/,' | LC_ALL=C sort) >"$tree/DEBIAN/conffiles"
	[ -s "$tree/DEBIAN/conffiles" ] || rm "$tree/DEBIAN/conffiles"
	(cd "$tree" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
}

case $package in
stager) stager ;;
kurma-launcher) kurma_launcher ;;
*)
	echo "package: no package $package" >&2
	exit 1
	;;
esac
documents
control
chmod -R u=rwX,go=rX "$tree"
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
# Gzip, because the bytes that xz writes depend on its number of threads.
dpkg-deb --root-owner-group -Zgzip --build "$tree" "$out/${package}_${version}_$arch.deb" >/dev/null

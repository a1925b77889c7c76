#!/bin/sh
# Usage: tools/release/debian/package.sh PACKAGE OUT ARCH
# Makes the Debian package "stager", "kurma-launcher", "kurma-netplugins" or "kurma-cri" of a release from the files in OUT, and
# writes it there. It needs VERSION and SOURCE_DATE_EPOCH, and of OUT the licences, the bills of materials of the package's
# programs, and the stager image with its signature and key, or launcher and aci of ARCH, or the images of the network plugins
# with their signatures, or kurma-cri of ARCH; the programs that this machine can execute make the man pages and the shells'
# completions. The same files give the same bytes.
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
	document stager/CONFIG.md
	copyright stager
}

kurma_netplugins() {
	names=
	for image in "$out"/*-netplugin-"$VERSION-linux-$arch.aci"; do
		name=${image##*/} name=${name%-"$VERSION"-linux-*}
		put 644 "$image" "usr/share/kurma/$name.aci"
		put 644 "$image.asc" "usr/share/kurma/$name.aci.asc"
		names="$names $name"
	done
	put 644 "$here/kurma-netplugins/kurma.json" usr/share/kurma/networks.d/kurma.json
	document docs/networks.md
	# shellcheck disable=SC2086 # a list of names
	copyright $names
}

kurma_cri() {
	put 755 "$out/kurma-cri-$VERSION-linux-$arch" usr/bin/kurma-cri
	put 644 "$here/kurma-cri/kurma-cri.json" etc/kurma/kurma-cri.json
	put 644 "$here/kurma-cri/kurma-cri.service" usr/lib/systemd/system/kurma-cri.service
	put 644 "$here/kurma-cri/kurma-cri.socket" usr/lib/systemd/system/kurma-cri.socket
	for name in kubelet.yaml kubelet.service; do put 644 "$here/kurma-cri/$name" "usr/share/doc/kurma-cri/examples/$name"; done
	for name in kubernetes one-machine; do document docs/$name.md; done
	copyright kurma-cri
}

kurma_launcher() {
	put 755 "$out/launcher-$VERSION-linux-$arch" usr/bin/launcher
	put 755 "$out/aci-$VERSION-linux-$arch" usr/bin/aci
	put 644 "$here/kurma-launcher/kurmad.json" etc/kurma/kurmad.json
	put 644 "$here/kurma-launcher/kurma-pod@.service" usr/lib/systemd/system/kurma-pod@.service
	put 755 "$here/kurma-launcher/pod.ocf" usr/lib/ocf/resource.d/kurma/pod
	for name in "$top"/docs/*.md; do document "docs/${name##*/}"; done
	for name in networks kubernetes one-machine fork; do rm "$tree/usr/share/doc/$package/$name.md"; done # of other packages, and for developers
	document launcher/README.md
	copyright launcher aci
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

# document FILE puts a document into the package's folder. Its links to the documents of the packages lead to their folders, and other links to
# files of the repository become plain text.
document() {
	target=$tree/usr/share/doc/$package/${1##*/}
	mkdir -p "${target%/*}"
	perl -pe '
		BEGIN { %at = map { split /=/ } split " ", shift }
		s{\[([^\]]*)\]\(([^)\x23]*)([^)]*)\)}{
			my ($all, $text, $link, $part) = ($&, $1, $2, $3);
			my $to = $at{$link =~ s,^.*/,,r};
			if ($link eq "" || $link =~ /^https?:/) { $all }
			elsif ($to && $link =~ m,^((\.\./)?(docs|stager)/)?[^/]*$,) { "[$text](../$to/" . ($link =~ s,^.*/,,r) . "$part)" }
			else { $text }
		}ge' "CONFIG.md=stager networks.md=kurma-netplugins kubernetes.md=kurma-cri one-machine.md=kurma-cri $(cd "$top/docs" && ls *.md | grep -v -x -e networks.md -e kubernetes.md -e one-machine.md -e fork.md | sed 's,$,=kurma-launcher,' | tr '\n' ' ')" \
		"$top/$1" >"$target"
	chmod 644 "$target"
}

# copyright PROGRAM... writes the copyright file: the licences of the package, and of all that the programs' bills of materials have.
copyright() {
	mkdir "$tree/licenses" "$tree/texts"
	tar -x -z -f "$out/licenses-$VERSION.tar.gz" -C "$tree/licenses"
	target=$tree/usr/share/doc/$package/copyright
	put 644 "$here/copyright" "usr/share/doc/$package/copyright"
	for program in "$@"; do
		perl -ne '$in ||= /^  "components"/ or next; print "$n\@$1\n" if /^      "version": "(.*)"/ && $n; $n = $1 if /^      "name": "(.*)"/; $n = "" if /^    }/' "$out/$program-$VERSION-linux-$arch.cdx.json"
	done | LC_ALL=C sort -u | while read -r part; do
		[ -d "$tree/licenses/$part" ] || {
			echo "package: licenses-$VERSION.tar.gz has no licence of $part" >&2
			exit 1
		}
		(cd "$tree/licenses" && find "$part" -type f | LC_ALL=C sort) | while read -r file; do licence "$part" "$file"; done >>"$target"
	done
	rm -r "$tree/licenses" "$tree/texts"
}

# licence PART FILE prints a licence of a linked part: a text that Debian has, or that was printed before, by its name.
licence() {
	printf '\n==== %s: %s\n\n' "$1" "${2#"$1"/}"
	common=/usr/share/common-licenses
	sum=$(sha256sum <"$tree/licenses/$2")
	case ${2##*/} in
	GPL-[23] | LGPL-2.1 | LGPL-3) echo "On Debian systems, the text is in $common/${2##*/}." ;;
	*)
		if grep -q -E '^ *Version 2.0, January 2004' "$tree/licenses/$2"; then
			echo "Apache-2.0. On Debian systems, the text is in $common/Apache-2.0."
			grep -E '^ *Copyright [^\[]*[0-9]{4}' "$tree/licenses/$2" || true
		elif [ -e "$tree/texts/${sum%% *}" ]; then
			echo "The same text as $(cat "$tree/texts/${sum%% *}")."
		else
			echo "$2" >"$tree/texts/${sum%% *}"
			cat "$tree/licenses/$2"
		fi
		;;
	esac
}

# documents are what every package of Debian has.
documents() {
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
kurma-netplugins) kurma_netplugins ;;
kurma-cri) kurma_cri ;;
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

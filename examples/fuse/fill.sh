#!/bin/sh
# Usage: fill.sh FOLDER
# Fills FOLDER with the files that the stager image has besides the stager: Debian's
# fuse-overlayfs in /fuse-overlayfs, with its dynamic linker and its libraries.
set -eu
umask 022
program=$(command -v fuse-overlayfs)
dir=$1/fuse-overlayfs
mkdir -p "$dir"
cp -L "$program" "$dir/fuse-overlayfs"
# A line of ldd is "NAME => PATH (ADDRESS)", or "PATH (ADDRESS)" for the linker itself.
ldd "$program" | while read -r first arrow path _; do
	case $first$arrow in
	*'=>') cp -L "$path" "$dir/$first" ;;
	/*) cp -L "$first" "$dir/ld.so" ;;
	esac
done
[ -x "$dir/ld.so" ]

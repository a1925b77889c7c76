#!/bin/sh
# Usage: examples/crun/build.sh OUT
# Builds the stager image OUT/crun.aci, with its signature and a throwaway key beside it, from
# this folder and Debian's crun, with the libraries that it needs. It needs bin/aci, which make
# builds, and the package crun.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d "$out/crun-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

CGO_ENABLED=0 go build -C "$here" -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/stager" .
for file in /usr/bin/crun $(ldd /usr/bin/crun | grep -o '/[^ ]*'); do
	mkdir -p "$work/tree$(dirname "$file")"
	cp -L "$file" "$work/tree$file"
done
"$top/bin/aci" --manifest "$top/aci-manifest.json" --stager "$work/stager" --add "$work/tree" -o "$out/crun.aci"

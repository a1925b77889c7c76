#!/bin/sh
# Usage: tests/short.sh ARGUMENT...
# Runs go test -short with the arguments as the user nobody, who can read the tree, before any make, and the go command's
# caches, and write into a folder in memory. Needs root.
set -eu
if [ "${1-}" != inside ]; then
	(cd "$(dirname "$0")/.." && go list -deps -test ./... >/dev/null) # downloads the modules
	exec unshare --mount --propagation private "$0" inside "$@"
fi
shift
tree=$(cd "$(dirname "$0")/.." && pwd)
exec 3<"$tree" 4<"$(go env GOMODCACHE)" 5<"$(go env GOCACHE)" # one may be below the next mount
work=/mnt
mount -t tmpfs -o mode=0755 short "$work"
cd "$work"
mkdir tree modules cache upper overlay home tmp
mount --no-canonicalize --bind -o ro /proc/self/fd/3 tree
for built in bin build/out dist; do
	[ ! -d "tree/$built" ] || mount -t tmpfs short "tree/$built"
done
mount --no-canonicalize --bind -o ro /proc/self/fd/4 modules
mount -t overlay -o "lowerdir=/proc/self/fd/5,upperdir=$work/upper,workdir=$work/overlay" overlay cache
chown nobody:nogroup home tmp cache cache/*
exec 3<&- 4<&- 5<&-
cd tree
exec setpriv --reuid nobody --regid nogroup --clear-groups --bounding-set -all --inh-caps -all --no-new-privs \
	env -i PATH="$PATH" HOME="$work/home" TMPDIR="$work/tmp" GOCACHE="$work/cache" GOMODCACHE="$work/modules" GOFLAGS="${GOFLAGS-}" \
	go test -short "$@"

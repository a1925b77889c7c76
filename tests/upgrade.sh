#!/bin/sh
# Usage: tests/upgrade.sh BIN STAGER.aci IMAGES COMMIT
# Pods that the programs of an earlier COMMIT have started run on under the launcher in BIN, which shows, enters, stops
# and restarts them, and starts new ones beside them. Nothing is left at the end.
set -eu

bin=$1 stager=$2 images=$3 commit=$4
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
group=kurma-upgrade-$$
app=kurma.io/stager/tests/busybox

die() {
	echo "upgrade: $*" >&2
	exit 1
}

finish() {
	status=$?
	[ ! -e "$work/new" ] || new rm --force --all >/dev/null || true
	rm -rf "$work"
	find /sys/fs/cgroup -depth -type d -name "$group" -exec rmdir {} + || true
	[ "$status" = 0 ] || echo "upgrade: ended early, with status $status" >&2
}
trap finish EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

old() { timeout 60 "$work/earlier/bin/launcher" --config "$work/old" --state "$work/state" "$@"; }
new() { timeout 60 "$bin/launcher" --config "$work/new" --state "$work/state" "$@"; }

# configure FILE ACI KEYS writes a configuration whose stager is ACI.
configure() {
	cat >"$1" <<-END
		{"parentCgroupName": "$group", "defaultStagerImage": "file://$2", "trustedKeys": [$3],
		 "trustDirectory": "$work/trust", "containerNetworksDirectory": "$work/networks.d"}
	END
}

# want WHAT TEXT PATTERN
want() {
	echo "$2" | grep -q "$3" || die "$1: $2"
	echo "upgrade: $1"
}

mkdir "$work/earlier" "$work/networks.d"
git -C "$top" archive "$commit" | tar -x -C "$work/earlier"
make -s -C "$work/earlier" aci VERSION=0.0.1 >"$work/build" 2>&1 || { cat "$work/build" >&2; die "make aci of $commit"; }
earlier=$(ls "$work"/earlier/build/out/stager-*.aci)
configure "$work/old" "$earlier" "\"$earlier.pub\""
configure "$work/new" "$stager" "\"$earlier.pub\", \"$stager.pub\""

old image import "file://$earlier" "$images/busybox.aci" >/dev/null
old run --detach --name talks $app --exec /bin/sh -- -c 'echo hello; trap "echo bye; exit 4" TERM; while :; do sleep 1; done' >/dev/null
old run --detach --name stays $app --exec /bin/sleep -- 1000 >/dev/null

new image import "file://$stager" >/dev/null
want 'pods of the earlier launcher run' "$(new ps)" '  talks  *running '
want 'their status is known' "$(new status talks)" 'busybox  *running '
want 'a command runs in one' "$(new exec talks -- /bin/echo here)" '^here$'
want 'their logs are read' "$(new logs talks)" '^hello$'
new run --detach --name beside $app --exec /bin/sleep -- 1000 >/dev/null
want 'a new pod runs beside them' "$(new exec beside -- /bin/echo here)" '^here$'
new stop talks
want 'a pod is stopped with its exit code' "$(new ps --all)" '  talks  *exited (4) '
want 'its last line is in its log' "$(new logs talks)" '^bye$'
new restart talks >/dev/null
want 'it starts again' "$(new exec talks -- /bin/echo here)" '^here$'
new restart stays >/dev/null
want 'a pod that runs is restarted' "$(new exec stays -- /bin/echo here)" '^here$'
new rm --force --all
new gc
[ -z "$(new --json ps --all)" ] || die 'pods are left'
left=$(find /sys/fs/cgroup -type d -path "*/$group/*")
[ -z "$left" ] || die "cgroups are left: $left"
echo 'upgrade: nothing is left'

#!/bin/sh
# Usage: tests/pacemaker/run.sh OUT
# Two machines of Pacemaker and corosync, as docs/operate.md has them, run a pod: the agent of the Debian package starts
# it, starts it again after its end, and on the other machine after one is killed. Each machine is a set of namespaces
# with a layer over a fresh Debian; nothing of it outlives the test, and no packet leaves it.
#
# It needs root, the programs in bin/, the stager image in OUT and the image of busybox in OUT/images. It keeps the
# fresh Debian in OUT/pacemaker.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
out=$(cd "$1" && pwd)

# How long the cluster may take to form, and a pod to start or to move, in seconds.
patience=120 bound=30

die() {
	echo "pacemaker: $*" >&2
	exit 1
}

# debian makes a fresh Debian with Pacemaker, unless an earlier test did.
debian() {
	[ ! -e "$out/pacemaker/debian" ] || return 0
	rm -rf "$out/pacemaker"
	mkdir -p "$out/pacemaker"
	mmdebstrap --quiet --variant=minbase --include=pacemaker,pacemaker-cli-utils,corosync,crmsh,iproute2 bookworm \
		"$out/pacemaker/new" "${MIRROR:-http://deb.debian.org/debian}"
	mv "$out/pacemaker/new" "$out/pacemaker/debian"
}

# finish ends the namespaces if they still are there, and removes the cgroups of the machine that was killed: a real one
# takes them with it.
finish() {
	[ -z "$child" ] || kill -KILL "$child" 2>/dev/null || true
	until=$(($(date +%s) + bound))
	until ! find /sys/fs/cgroup -depth -type d -path "*/$group-*" -exec rmdir {} + 2>&1 | grep -q .; do
		[ "$(date +%s)" -lt "$until" ] || die "processes are left in cgroups $group-*"
		sleep 0.1
	done
	rmdir "$work"
}

if [ $# = 1 ]; then # outside of the namespaces
	debian
	work=$(mktemp -d) group=kurma-pacemaker-$$ child=
	trap finish EXIT
	trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it
	unshare --mount --net --pid --ipc --uts --fork --kill-child --mount-proc "$0" "$out" "$work" "$group" &
	child=$!
	wait "$child"
	exit
fi
work=$2 group=$3

# on N COMMAND... executes a command on a machine.
on() {
	node=$(cat "$work/$1.pid")
	shift
	nsenter --target "$node" --mount --net --pid --ipc --uts --root --wd "$@"
}

# await SECONDS WHAT COMMAND... polls until the command succeeds.
await() {
	seconds=$1 what=$2
	shift 2
	until=$(($(date +%s) + seconds))
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$until" ] || { report; die "$what: not within $seconds s"; }
		sleep 0.1
	done
}

report() {
	for n in 1 2; do
		echo "== node$n"
		on "$n" crm_mon -1 || true
		log=$work/$n/upper/var/log
		tail -n 60 "$work/$n.log" "$log/pacemaker/pacemaker.log" "$log/corosync.log" || true
	done >&2 2>&1
}

# machine N starts a machine with its own files, network and processes.
machine() {
	mkdir -p "$work/$1/upper" "$work/$1/work" "$work/$1/root"
	unshare --mount --net --pid --ipc --uts --fork --kill-child \
		"$here/node.sh" "$1" "$out/pacemaker/debian" "$work/$1" "$work/dist" "$group" >"$work/$1.log" 2>&1 &
	await "$patience" "machine $1" pgrep --parent $!
	pgrep --parent $! >"$work/$1.pid"
}

# pods N prints the pods that run on a machine; a machine that is gone has none.
pods() { on "$1" launcher ps --quiet --filter name=web --filter state=running; }
runs() { [ -n "$(pods "$1")" ]; }
rests() { [ -z "$(on "$1" launcher ps --all --quiet)" ]; }
runs_again() { runs "$1" && [ "$(pods "$1")" != "$2" ]; }
either() { runs 1 || runs 2; }
online() { on 1 crm_mon -1 | grep -q 'Online: \[ node1 node2 \]'; }
serves() { on "$1" test -e /run/ready; }

mount --make-rprivate /
mount -t tmpfs layers "$work"
mkdir "$work/dist"
name=$(cd "$top" && go run ./names/print)
VERSION=1.0.0 SOURCE_DATE_EPOCH=1700000000 "$top/tests/release/dist.sh" "$top/bin" \
	"$(ls "$out/$name"-*-linux-"$(dpkg --print-architecture)".aci)" "$work/dist" >/dev/null
cp "$out/images/busybox.aci" "$here/node.sh" "$work/dist/"
sed -n '/^```sh pacemaker$/,/^```$/{/^```/!p}' "$top/docs/operate.md" >"$work/dist/commands"
sed -n '/^```corosync$/,/^```$/{/^```/!p}' "$top/docs/operate.md" >"$work/dist/corosync.conf"

machine 1
machine 2
ip link add node1 netns "$(cat "$work/1.pid")" type veth peer name node2 netns "$(cat "$work/2.pid")"
await "$patience" 'the first machine' serves 1
await "$patience" 'the second machine' serves 2
await "$patience" 'the cluster' online
echo 'pacemaker: two machines are online'

on 1 sh -eux /dist/commands
await "$bound" 'the pod runs' either
here_now=1 other=2
runs 1 || here_now=2 other=1
! runs "$other" || die 'the pod runs on both machines'
echo "pacemaker: node$here_now runs the pod"

first=$(pods "$here_now")
on "$here_now" launcher kill web
await "$bound" 'the pod runs again after its end' runs_again "$here_now" "$first"
echo 'pacemaker: the pod that had ended runs again'

begin=$(date +%s%N)
kill -KILL "$(cat "$work/$here_now.pid")"
await "$bound" 'the pod runs on the other machine' runs "$other"
echo "pacemaker: node$other runs the pod $((($(date +%s%N) - begin) / 1000000)) ms after node$here_now was killed"
on "$other" launcher exec web -- /bin/sh -c 'echo hello from the pod'

on "$other" crm resource stop web
await "$bound" 'the pod is stopped' rests "$other"
! grep -q " $work/$other/root/var/lib/kurma/" /proc/self/mounts || die 'mounts of the pod are left'
! find /sys/fs/cgroup -path "*/$group-$other/*" | grep . || die 'cgroups of the pod are left'
kill -KILL "$(cat "$work/$other.pid")"
echo 'PACEMAKER: passed'

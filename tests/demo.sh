#!/bin/sh
# Usage: tests/demo.sh BIN STAGER.aci IMAGES
# Runs the example pod of the Kurma Stager Specification: imports its images, starts
# it as a Kurma daemon does, queries it, sends it a message, stops it, and shows that
# nothing is left. All files are in a temporary folder.
set -eu

bin=$1 stager=$2 images=$3
state=$(mktemp -d)
launched=

finish() {
	status=$?
	[ -z "$launched" ] || "$bin/launcher" --config "$state/kurmad.json" --state "$state" stop demo || true
	rm -rf "$state"
	find /sys/fs/cgroup -depth -type d -name "kurma-demo-$$" -exec rmdir {} + || true
	[ "$status" = 0 ] || echo "demo: ended early, with status $status" >&2
}
trap finish EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

# shellcheck source=tests/demo-words.sh
. "$(dirname "$0")/demo-words.sh"

# processes_of PID lists the processes in the network namespace of PID.
processes_of() {
	namespace=$(readlink "/proc/$1/ns/net")
	for process in /proc/[0-9]*; do
		[ "$(readlink "$process/ns/net" 2>/dev/null)" != "$namespace" ] || echo "${process#/proc/}"
	done
}

# A separate parent cgroup shows what is left in it.
cgroup=kurma-demo-$$
cat >"$state/kurmad.json" <<END
{"trustedKeys": ["$stager.pub"], "parentCgroupName": "$cgroup"}
END

say "import the stager image, which is signed, and the NATS image"
launcher image import "$stager" "$images/nats.aci"
launcher image list

say "the pod of the specification's example"
cat "$images/pods/nats.json"
launched=yes
launcher run --detach --name demo "$images/pods/nats.json"
launcher ps
stager_pid=$("$bin/launcher" --config "$state/kurmad.json" --state "$state" ps --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
pids=$(processes_of "$stager_pid")
namespaces=$(for kind in mnt net; do readlink "/proc/$stager_pid/ns/$kind"; done)
say "its processes: $(echo $pids)"
# shellcheck disable=SC2046,SC2086 # a list of numbers
ps -o pid,ppid,rss,args -p "$(echo $pids | tr ' ' ,)"

say "publish and receive a message, in the pod's network namespace"
show nsenter --net="/proc/$stager_pid/ns/net" "$images/natstalk" greetings "hello from outside the pod"

say "status"
launcher status --json demo
say "run"
launcher exec demo nats -- /gnatsd --version
say "attach, while a client connects"
echo '$ launcher attach demo nats &'
"$bin/launcher" --config "$state/kurmad.json" --state "$state" attach demo nats >"$state/attached" 2>&1 </dev/null &
attached=$!
for _ in $(seq 300); do
	nsenter --net="/proc/$stager_pid/ns/net" "$images/natstalk" greetings "again" >/dev/null
	! grep -q 'Client connection' "$state/attached" || break
	sleep 0.1
done
kill $attached
wait $attached || true
cat "$state/attached"
grep -q 'Client connection' "$state/attached" || fail "attach did not show the connection"
say "logs"
launcher logs demo nats

say "stop"
launcher stop demo
launched=
launcher gc

say "nothing is left"
launcher ps
for pid in $pids; do
	[ ! -e "/proc/$pid" ] || fail "process $pid is left"
done
for namespace in $namespaces; do
	[ -z "$(find /proc/[0-9]*/ns -lname "$namespace" 2>/dev/null)" ] || fail "namespace $namespace is left"
done
! grep "$state" /proc/self/mountinfo || fail "mounts are left"
left=$(find /sys/fs/cgroup -path "*$cgroup/*" -type d) || true # cgroups of others vanish meanwhile
[ -z "$left" ] || fail "cgroups are left: $left"
left=$(find "$state/pods" -mindepth 1 ! -name .lock ! -name .events) # the launcher's own, which `events` reads
[ -z "$left" ] || fail "files of the pod are left: $left"
echo "no process, namespace, mount, cgroup or file of the pod"

#!/bin/sh
# Runs in a machine whose PID 1 is systemd, and once more after a reboot. First README.md's first pod with the Debian packages in
# this folder, and the pods of docs/pods.md; after the reboot the commands that docs/pods.md has for it, then a pod as a service, and
# the server for Kubernetes.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
trap 'status=$?; [ "$status" = 0 ] || { echo "SERVICE: failed"; journalctl --no-pager -n 60; }' EXIT

check() {
	echo "check: $1"
	shift
	"$@" || {
		echo "failed: $*"
		exit 1
	}
}
is() { [ "$1" = "$2" ] || { echo "is '$1', want '$2'"; return 1; }; }
property() { systemctl show --property "$1" --value "$2"; }
contains() { grep -q -e "$2" "$1" || { cat "$1"; return 1; }; }
fails() { ! "$@"; }
stagers() { grep -q -s -x stager /proc/[0-9]*/comm; } # Debian's busybox has no pgrep

# pod NAME SCRIPT writes the manifest of a pod of one shell.
pod() {
	id=$(launcher image list --json | grep '"name":"kurma.io/stager/tests/busybox"' | sed 's/.*"id":"\([^"]*\)".*/\1/')
	cat >"/etc/kurma/pods/$1.json" <<-END
		{"acVersion": "0.8.11", "acKind": "PodManifest", "apps": [{"name": "app", "image": {"id": "$id"},
			"app": {"exec": ["/bin/sh", "-c", "$2"], "user": "0", "group": "0"}}]}
	END
}

echo "PID 1 is $(cat /proc/1/comm), $(systemctl --version | head -1)"
check 'systemd is PID 1' is "$(cat /proc/1/comm)" systemd
check 'cgroup v2 only' test -e /sys/fs/cgroup/cgroup.controllers

cd /root
if ! [ -e before-reboot ]; then
	"$PWD/hub/run" >/run/hub 2>&1 & # stands in for Docker Hub
	begin=$(cut -d . -f 1 /proc/uptime)
	sh -eux first-pod >/run/first-pod 2>&1 || { cat /run/first-pod; exit 1; }
	echo "README.md's first pod took $(($(cut -d . -f 1 /proc/uptime) - begin)) s"
	sed 's/^/| /' /run/first-pod
	for line in 'signed by' 'first  running' '^hello from hello' '^hello from a command' 'Active: active (running)' ' hello\[[0-9]*\]: hello from hello'; do
		check "the first pod prints '$line'" contains /run/first-pod "$line"
	done
	check 'the first pod has ended' is "$(property ActiveState kurma-pod@first.service)" inactive

	sh -eux stack >/run/stack 2>&1 || { cat /run/stack; exit 1; }
	echo "docs/pods.md ended after $(($(cut -d . -f 1 /proc/uptime) - begin)) s"
	for line in 'page number' 'Active: active (running)' 'with 3 apps can be started' '^visit ' '^you are visitor ' '(1 row)' ' db\[[0-9]*\]: .*database system is ready'; do
		check "docs/pods.md prints '$line'" contains /run/stack "$line"
	done
	check 'the first stack has ended' is "$(property ActiveState kurma-pod@stack.service)" inactive
	check 'the second stack runs' is "$(property ActiveState kurma-pod@shop.service)" active

	pid=$(launcher status --json shop | sed -n 's/.*"db":{"pid":\([0-9]*\).*/\1/p')
	kill -KILL "$pid"
	for n in $(seq 60); do
		! launcher exec shop db -- psql -U postgres -t -A -c 'SELECT count(*) FROM visits' >/run/visits 2>&1 || break
		sleep 1
	done
	check 'a database that is killed comes back with its data' test "$(cat /run/visits)" -gt 1
	check 'the service is active as before' is "$(property ActiveState kurma-pod@shop.service)" active
	cp /run/visits before-reboot
	sync
	echo 'SERVICE: reboot'
	exit
fi
sh -eux rebooted >/run/rebooted 2>&1 || { cat /run/rebooted; exit 1; }
check 'the stack runs after a reboot' contains /run/rebooted '^active$'
visitors=$(sed -n 's/^you are visitor //p' /run/rebooted)
check 'it goes on counting' test "$visitors" -gt "$(cat before-reboot)"
systemctl disable --now kurma-pod@shop.service

launcher run --detach --name made --publish 8093:80 --memory 32m --restart on-failure example.com/hello
launcher generate made >/dev/null 2>/run/generated
check 'generate prints the lines of a service' contains /run/generated '^  systemctl enable --now kurma-pod@made.service$'
sed -n 's/^  //p' /run/generated >/run/lines
sh -eux /run/lines
check 'the lines that generate prints start the service' is "$(property ActiveState kurma-pod@made.service)" active
check 'the service has the options' contains /etc/kurma/pods/made.env '^OPTIONS=--restart on-failure'
for n in $(seq 60); do ! busybox wget -q -O - http://127.0.0.1:8093 >/run/page || break; sleep 1; done
check 'the service has the port' contains /run/page hello
systemctl disable --now kurma-pod@made.service
check 'gc deletes the pods that have ended, also before the reboot' launcher gc

launcher image import busybox.aci

pod web 'echo hello from the pod; trap \"echo good bye; exit 0\" TERM; while :; do sleep 1; done'
check 'the service starts' systemctl start kurma-pod@web.service
check 'the service is ready when the pod runs' is "$(property ActiveState kurma-pod@web.service)" active
launcher status web >/run/status
check 'the app runs' contains /run/status running
main=$(property MainPID kurma-pod@web.service)
check 'the main process is the launcher' is "$(cat "/proc/$main/comm")" launcher
bounds=$(sed -n 's/^CapBnd:\t//p' "/proc/$main/status")
check 'the service cannot load modules' is "$((0x$bounds >> 16 & 1))" 0
check 'systemd-analyze counts what the unit restricts' systemd-analyze security --no-pager --threshold=95 kurma-pod@web.service
unit=$(property ControlGroup kurma-pod@web.service)
uuid=$(launcher ps --json | sed -n 's/.*"uuid":"\([^"]*\)".*"name":"web".*/\1/p')
check 'the pod is in the cgroup of the service' test -d "/sys/fs/cgroup$unit/$uuid"
check 'the status text has the pod' is "$(property StatusText kurma-pod@web.service)" "Pod $uuid"
for n in 1 2 3 4 5 6 7 8 9 10; do
	journalctl --no-pager --output cat --unit kurma-pod@web.service >/run/journal
	! grep -q 'hello from the pod' /run/journal || break
	sleep 1
done
check 'the app writes to the journal' contains /run/journal 'hello from the pod'
journalctl --no-pager --output cat KURMA_APP=app KURMA_POD=web "KURMA_POD_UUID=$uuid" >/run/journal
check 'the journal finds the lines by pod, UUID and app' is "$(cat /run/journal)" 'hello from the pod'
journalctl --no-pager --output cat KURMA_APP=other >/run/journal
check 'no line is of another app' is "$(cat /run/journal)" ''

check 'systemd executes itself again' systemctl daemon-reexec
check 'the service is still active' is "$(property ActiveState kurma-pod@web.service)" active
check 'the launcher is the same process' is "$(property MainPID kurma-pod@web.service)" "$main"
launcher status web >/run/status
check 'the app still runs' contains /run/status running
launcher exec web app -- echo from exec >/run/exec
check 'a command runs in the app' contains /run/exec 'from exec'

check 'restart names the service' fails launcher restart web
check 'the service is active as before' is "$(property MainPID kurma-pod@web.service)" "$main"

check 'the service stops' systemctl stop kurma-pod@web.service
check 'the stop was clean' is "$(property Result kurma-pod@web.service)" success
check 'the launcher has ended with 0' is "$(property ExecMainStatus kurma-pod@web.service)" 0
journalctl --no-pager --output cat --unit kurma-pod@web.service >/run/journal
check 'the app was told to stop' contains /run/journal 'good bye'
check 'no pod is left' is "$(launcher ps --all --json)" ''
check 'no cgroup is left' test ! -e "/sys/fs/cgroup$unit"
check 'no mount is left' fails grep -q ' /var/lib/kurma/' /proc/self/mounts

check 'the service starts again' systemctl start kurma-pod@web.service
kill -KILL "$(property MainPID kurma-pod@web.service)"
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	again=$(property MainPID kurma-pod@web.service)
	[ "$again" = 0 ] || [ "$(property ActiveState kurma-pod@web.service)" != active ] || break
	sleep 1
done
check 'a launcher that is killed is started again' is "$(property ActiveState kurma-pod@web.service)" active
launcher status web >/run/status
check 'the app runs again' contains /run/status running

pod bad '/nonexistent/program' && sed -i 's,"/bin/sh","/nonexistent",' /etc/kurma/pods/bad.json
check 'a pod that cannot start fails the start' fails systemctl start kurma-pod@bad.service
check 'a missing manifest fails the start' fails systemctl start kurma-pod@none.service

systemctl stop kurma-pod@bad.service # which systemd starts again and again
pod dies 'echo serving; sleep 5; exit 3'
sed -i 's,"apps": \[,&{"name": "web"\, "image": {"id": "'"$id"'"}\, "app": {"exec": ["/bin/sleep"\, "1000"]\, "user": "0"\, "group": "0"}}\, ,' /etc/kurma/pods/dies.json
check 'a pod of two apps starts' systemctl start kurma-pod@dies.service
for n in $(seq 60); do [ "$(property NRestarts kurma-pod@dies.service)" = 0 ] || break; sleep 1; done
check 'an app that ends for good with a failure ends the service, which starts again' test "$(property NRestarts kurma-pod@dies.service)" -ge 1
journalctl --no-pager --output cat --unit kurma-pod@dies.service >/run/journal
check 'the journal has the exit code' contains /run/journal 'code=exited, status=3'
systemctl stop kurma-pod@dies.service
dpkg --install kurma-cri_*.deb
check 'the server is not enabled' is "$(systemctl is-enabled kurma-cri.service)" disabled
mkdir -p /etc/cni/net.d
cat >/etc/cni/net.d/10-bridge.conflist <<-'END'
	{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
	 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}}]}
END
check 'the server starts' systemctl enable --now kurma-cri
check 'the server is ready' kurma-cri status
check 'its containers inherit no limit of processes' is "$(property LimitNPROC kurma-cri.service)" infinity
socket=/run/kurma-cri/kurma-cri.sock
check 'only root may call it' is "$(stat -c %a "$socket")$(stat -c %a "${socket%/*}")" 600700
launcher --state /var/lib/kurma-cri image import busybox.aci
busctl --quiet call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager \
	StartTransientUnit 'ssa(sv)a(sa(sv))' kubepods-test.slice replace 5 DefaultDependencies b false \
	MemoryAccounting b true CPUAccounting b true TasksAccounting b true IOAccounting b true 0 # as kubelet makes a pod's slice
container=$(./client "$socket" run kubepods-test.slice aci/kurma.io/stager/tests/busybox:"$(aci inspect --json busybox.aci |
	sed -n 's/.*"version":"\([^"]*\)".*/\1/p')" sh -c 'trap "" TERM; while :; do sleep 1; done') || container=
runs() { is "$(./client "$socket" state "$container")" CONTAINER_RUNNING; }
limited() { is "$(cat /sys/fs/cgroup/kubepods.slice/kubepods-test.slice/kurma-*/*/apps/app*/memory.max)" 67108864; }
check 'a container runs' runs
check "it has its memory limit in kubelet's slice" limited
check 'systemd reads its units again' systemctl daemon-reload
check 'systemd changes the slice' systemctl set-property --runtime kubepods-test.slice CPUWeight=50 TasksAccounting=false
check 'the container has kept its limit' limited
check 'the container runs in the changed slice' runs
check 'the server restarts' systemctl restart kurma-cri.service
check 'the container runs on' runs
main=$(property MainPID kurma-cri.service)
kill -KILL "$main"
check 'a call waits for the next server' runs
check 'the next server is another process' fails is "$(property MainPID kurma-cri.service)" "$main"
main=$(property MainPID kurma-cri.service)
dpkg --install kurma-cri_*.deb
check 'an upgrade restarts the server' fails is "$(property MainPID kurma-cri.service)" "$main"
check 'the container still runs on' runs
check 'the server stops' systemctl stop kurma-cri.socket kurma-cri.service
inSlice() { grep -q -s . /sys/fs/cgroup/kubepods.slice/kubepods-test.slice/kurma-*/*/apps/app*/cgroup.procs; }
check 'the container runs on without a server' inSlice
dpkg --remove kurma-cri
check 'the removal stops the container' fails inSlice
check 'the removal leaves no mount' fails grep -q ' /var/lib/kurma-cri/' /proc/self/mounts
check 'the removal leaves no cgroup' is "$(find /sys/fs/cgroup -path '*kurma*' -name 'kurma-*' ! -name '*.s*')" ''
dpkg --purge kurma-cri
check 'the purge leaves nothing of the server' test ! -e /var/lib/kurma-cri -a ! -e /etc/kurma/kurma-cri.json

check 'a pod has a stager' stagers
dpkg --remove kurma-launcher
check 'the removal stops the pods' is "$(property ActiveState kurma-pod@web.service)" inactive
check 'no stager of a pod is left' fails stagers
rm -r /etc/kurma/pods/* /etc/kurma/certs.d
dpkg --purge kurma-launcher stager
check 'the purge leaves nothing' test ! -e /var/lib/kurma -a ! -e /etc/kurma
echo 'SERVICE: passed'

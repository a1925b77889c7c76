#!/bin/sh
# Init of the virtual machine: makes it as systemd makes one with cgroup v2
# alone, runs the suites of /suites, says what came of each, and switches off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

filesystems() {
	mount -t proc proc /proc
	mount -t sysfs sysfs /sys
	mount -t devtmpfs dev /dev
	mkdir -p /dev/pts /dev/shm /dev/mqueue
	mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
	mount -t tmpfs shm /dev/shm
	mount -t mqueue mqueue /dev/mqueue
	mount -t tmpfs run /run
	mount -t securityfs securityfs /sys/kernel/security
	mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
	mount --make-rshared /
}

# The tests run as a service does: in a leaf of its own, with the controllers
# that systemd hands to slices and services that ask for no others.
service() {
	cd /sys/fs/cgroup || return
	mkdir -p init.scope system.slice/tests.service
	echo 1 >init.scope/cgroup.procs
	for dir in . system.slice; do
		echo '+cpu +io +memory +pids' >$dir/cgroup.subtree_control
	done
	echo $$ >system.slice/tests.service/cgroup.procs
}

# tasks prints what each thread of the programs does, and where the kernel holds those that no
# signal reaches and those that are stopped.
tasks() {
	for task in /proc/[0-9]*/task/[0-9]*; do
		[ -n "$(readlink "$task/exe")" ] || continue
		echo "task ${task##*/} of $(echo "$task" | cut -d / -f 3) ($(cat "$task/comm")): $(sed -n 's/^State:.//p; s/^PPid:./, parent /p' "$task/status" | tr -d '\n'), in $(cat "$task/wchan"), call $(cut -d ' ' -f 1 "$task/syscall"), cgroup $(sed -n 's/^0:://p' "$task/cgroup")"
		grep -q '^State:.[DTt]' "$task/status" && sed 's/^/  /' "$task/stack"
	done 2>/dev/null
}

# watch switches the machine off if a suite's own time limit has not ended it: Go cannot keep that
# limit while the kernel holds a thread between fork and exec.
watch() {
	sleep $((limit * 60 + 60))
	echo 'the suite is hung'
	tasks
	poweroff -f
}

# suite NAME PACKAGE RUN SKIP runs a suite's tests. Those that skip themselves count as
# failed: what cannot run here is known before. It returns 0 if they failed, or are not there.
suite() {
	passed=0
	cd "/src/$2" || return 0
	watch </dev/null &
	{
		./suite.test -test.v -test.timeout "${limit}m" -test.run "$3" -test.skip "$4" </dev/null 2>&1
		echo $? >/run/status
	} | tee /run/log | grep -v '^=== ATTR'
	kill $!
	passed=$(grep -c '^--- PASS' /run/log)
	grep -q '^ *--- SKIP' /run/log || [ "$passed" = 0 ] || [ "$(cat /run/status)" != 0 ]
}

filesystems
service
while sleep 10; do echo alive; done </dev/null &
modprobe -a loop fuse # block devices that hold nothing, and /dev/fuse, as every machine has
ip link set lo up
hostname vm
ulimit -n 65536
limit=$(cat /limit) # of a suite, in minutes
export PATIENCE=5m # for 14 networks of a pod
export NETWORK_PODS=4 # CNI's plugins for more at once do not end within their 50 seconds on an emulated processor
export ORPHANS=2000 # an emulated processor takes minutes for the 20,000 of TestOrphansCostInitNothing
STAGER_BIN=/built STAGER_IMAGES=/built/images STAGER_ACI=$(ls /built/*-linux-*.aci)
export STAGER_BIN STAGER_IMAGES STAGER_ACI
echo "kernel $(uname -r), cgroup2 with $(cat /sys/fs/cgroup/cgroup.controllers); file systems $(sed 's/.*\t//' /proc/filesystems | tr '\n' ' '); $(cat /sys/kernel/security/lsm)"
while read -r name package run skip <&9; do
	read -r begun _ </proc/uptime
	echo "== $name"
	if suite "$name" "$package" "$run" "$skip" 9<&-; then result=failed; else result=passed; fi
	read -r ended _ </proc/uptime
	echo "VM: $name $result: $passed tests in $((${ended%.*} - ${begun%.*})) s"
done 9</suites
poweroff -f

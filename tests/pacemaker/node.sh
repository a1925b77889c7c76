#!/bin/sh
# Usage: tests/pacemaker/node.sh N DEBIAN DIR DIST GROUP
# Is PID 1 of one of the test's machines: makes its files, installs the packages of DIST, starts corosync and Pacemaker,
# and collects processes until it is killed. Its files are a layer in DIR over those of DEBIAN; GROUP begins the name of
# its pods' cgroup.
set -eu
umask 022

# files makes the machine's file system.
files() {
	mount -t overlay -o lowerdir="$debian",upperdir="$dir/upper",workdir="$dir/work" overlay "$dir/root"
	cd "$dir/root"
	mount -t proc proc proc
	mount --rbind /sys sys
	mount --rbind /dev dev
	for folder in dev/shm run tmp var/lib/kurma; do # an overlay's layers cannot be in an overlay
		mkdir -p "$folder"
		mount -t tmpfs tmpfs "$folder"
	done
	mkdir -p dist
	mount --bind "$dist" dist
	hostname "node$n"
}

# network waits for the test's cable to the other machine.
network() {
	until ip link show "node$n" >/dev/null 2>&1; do sleep 0.1; done
	ip link set lo up
	ip address add "10.87.0.$n/24" dev "node$n"
	ip link set "node$n" up
}

# pod installs the launcher, and writes the manifest of a pod of one shell.
pod() {
	dpkg --no-triggers --install /dist/stager_*.deb /dist/kurma-launcher_*.deb
	echo "{\"parentCgroupName\": \"$group-$n\"}" >/etc/kurma/kurmad.json
	fingerprint=$(aci verify --key /usr/share/kurma/stager-key.asc /usr/share/kurma/stager.aci | sed 's/.* //')
	launcher trust add --fingerprint "$fingerprint" /usr/share/kurma/stager-key.asc
	launcher image import /usr/share/kurma/stager.aci
	id=$(launcher image import /dist/busybox.aci)
	cat >/etc/kurma/pods/web.json <<-END
		{"acVersion": "0.8.11", "acKind": "PodManifest", "apps": [{"name": "app", "image": {"id": "$id"}, "app": {
			"user": "0", "group": "0", "exec": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}}]}
	END
}

# cluster starts corosync and Pacemaker. Corosync has no realtime scheduling, which not every machine of tests permits.
cluster() {
	cat /dist/corosync.conf - >/etc/corosync/corosync.conf <<-'END'
		system {
		  sched_rr: no
		  move_to_root_cgroup: no
		}
		logging {
		  to_syslog: no
		  to_logfile: yes
		  logfile: /var/log/corosync.log
		}
	END
	corosync -f &
	until corosync-cfgtool -s >/dev/null 2>&1; do
		kill -0 $! # fails if corosync has ended
		sleep 0.1
	done
	pacemakerd &
}

n=$1 debian=$2 dir=$3 dist=$4 group=$5
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
if [ "$debian" != / ]; then
	files
	exec chroot . /dist/node.sh "$n" / / /dist "$group" </dev/null
fi
network
pod
cluster
touch /run/ready
wait # it also collects the processes of others that become children of PID 1

#!/bin/sh
# Usage: tests/demo-networks.sh BIN STAGER.aci IMAGES
# Runs two pods of NATS, a cluster of two servers, on a bridge network with a published port. The image of one comes
# from a file, that of the other from a registry. The machine of this demo is a network namespace, so the
# bridge and the rules of iptables go with it. All files are in a temporary folder.
set -eu

if [ -z "${DEMO_INSIDE-}" ]; then
	DEMO_INSIDE=yes exec unshare --net "$0" "$@"
fi
bin=$1 stager=$2 images=$3
state=$(mktemp -d)
registry=
pods=

finish() {
	status=$?
	for pod in $pods; do
		"$bin/launcher" --config "$state/kurmad.json" --state "$state" rm --force "$pod" || true
	done
	[ -z "$pods" ] || "$bin/launcher" --config "$state/kurmad.json" --state "$state" gc || true
	[ -z "$registry" ] || kill "$registry"
	rm -rf "$state"
	find /sys/fs/cgroup -depth -type d -name "kurma-demo-$$" -exec rmdir {} + || true
	[ "$status" = 0 ] || echo "demo: ended early, with status $status" >&2
}
trap finish EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

# shellcheck source=tests/demo-words.sh
. "$(dirname "$0")/demo-words.sh"
quietly() { "$@" >"$state/said" 2>&1 || fail "$*: $(cat "$state/said")"; }

# address_of POD prints the pod's address on its network.
address_of() {
	"$bin/launcher" --config "$state/kurmad.json" --state "$state" ps --json |
		sed -n "s,.*\"name\":\"$1\".*\"ip4\":{\"ip\":\"\([0-9.]*\)/.*,\1,p"
}

ip link set lo up
cgroup=kurma-demo-$$
plugin=$(dirname "$stager")/cni-netplugin.aci
cat >"$state/kurmad.json" <<END
{
  "trustedKeys": ["$stager.pub", "$plugin.pub"], "parentCgroupName": "$cgroup",
  "container_networks": [{
    "name": "bridge", "aci": "kurma.io/stager/cni-netplugin", "containerInterface": "eth{{num}}", "cniVersion": "1.0.0",
    "plugins": [
      {"type": "bridge", "bridge": "kurma0", "isGateway": true, "ipMasq": true,
       "ipam": {"type": "host-local", "subnet": "10.88.0.0/16", "routes": [{"dst": "0.0.0.0/0"}]}},
      {"type": "portmap", "capabilities": {"portMappings": true}}
    ]
  }]
}
END
say "a network on a bridge, whose plugin runs CNI plugins"
sed -n '/container_networks/,/^  }/p' "$state/kurmad.json"
launcher image import "$stager" "$plugin" "$images/nats.aci"
launcher network validate bridge

say "NATS in a registry of this machine, an image that umoci has made"
printf 'version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: "127.0.0.1:5000"}\n' "$state/registry" >"$state/registry.yml"
docker-registry serve "$state/registry.yml" >"$state/registry.log" 2>&1 &
registry=$!
quietly umoci init --layout "$state/layout"
quietly umoci new --image "$state/layout:2"
quietly umoci unpack --image "$state/layout:2" "$state/bundle"
cp "$images/nats-server" "$(dirname "$0")/images/nats/gnatsd.conf" "$state/bundle/rootfs/"
quietly umoci repack --image "$state/layout:2" "$state/bundle"
quietly umoci config --image "$state/layout:2" --config.entrypoint /nats-server --config.cmd -c --config.cmd /gnatsd.conf
for attempt in $(seq 100); do
	! skopeo copy --quiet --dest-tls-verify=false "oci:$state/layout:2" docker://127.0.0.1:5000/nats:2 2>"$state/said" || break
	[ "$attempt" != 100 ] || fail "push the image: $(cat "$state/said")"
	sleep 0.2
done

say "a pod whose port 4222 is port 14222 of the machine"
cat >"$state/first.json" <<'END'
{
  "acKind": "PodManifest", "acVersion": "0.8.11",
  "apps": [{"name": "nats", "image": {"name": "registry-1.docker.io/library/nats"}}],
  "ports": [{"name": "4222-tcp", "hostPort": 14222}]
}
END
cat "$state/first.json"
pods=first
launcher run --detach --name first --net bridge "$state/first.json"
first=$(address_of first)
echo "its address is $first"
say "a pod of the registry's image, in a cluster with the first"
pods="first second"
launcher run --detach --name second --net bridge docker://127.0.0.1:5000/nats:2 -- -c /gnatsd.conf --routes "nats-route://$first:6222"
second=$(address_of second)
echo "its address is $second"
launcher ps

say "publish to the machine's port, and receive from the second pod"
show "$images/natstalk" -server nats://127.0.0.1:14222 -from "nats://$second:4222" greetings "hello through the published port" ||
	fail "the message did not arrive; the second server says: $("$bin/launcher" --config "$state/kurmad.json" --state "$state" logs second 2>&1)"

say "stop"
launcher stop first
launcher stop second
pods=
launcher gc

say "nothing is left"
launcher ps
links=$(ip -o link show type veth)
[ -z "$links" ] || fail "links are left: $links"
rules=$(iptables -t nat -S | grep -- "10\.88\.\|14222" || true)
[ -z "$rules" ] || fail "rules are left: $rules"
left=$(find "$state/networks" -path '*/cni/networks/bridge/10.*')
[ -z "$left" ] || fail "addresses are left: $left"
! grep "$state" /proc/self/mountinfo || fail "mounts are left"
left=$(find /sys/fs/cgroup -path "*$cgroup/*" -type d) || true # cgroups of others vanish meanwhile
[ -z "$left" ] || fail "cgroups are left: $left"
echo "no address, link, rule, mount or cgroup of the pods"

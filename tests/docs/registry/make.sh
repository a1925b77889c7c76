#!/bin/sh
# Usage: tests/docs/registry/make.sh IMAGES OUT
# Makes in OUT a docker-registry with the images that stand in for Docker Hub's, where documents are tested without it:
# docker.io/library/nginx:1-alpine and docker.io/library/postgres:17-alpine. They are Debian's programs of IMAGES, the
# built images of tests/images, set up as the official images are. OUT/run runs the registry, on 127.0.0.1:5000.
# It needs root, and Debian's buildah and docker-registry.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
images=$(cd "$1" && pwd)
mkdir -p "$2/images"
out=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

cp "$(command -v docker-registry)" "$out/docker-registry"
cat >"$out/run" <<'RUN'
#!/bin/sh
# Runs the registry of this folder.
here=$(cd "$(dirname "$0")" && pwd)
printf 'version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s/images}}\nhttp: {addr: "127.0.0.1:5000"}\n' "$here" >"$here/config.yml"
exec "$here/docker-registry" serve "$here/config.yml"
RUN
chmod 755 "$out/run"

own_buildah() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }

# build NAME TAG makes an image in an archive.
build() {
	mkdir "$work/$1"
	cp "$here/$1"/* "$work/$1/"
	tar -C "$work/$1" -x -z -f "$images/$1.aci" rootfs
	mkdir -p "$work/$1/rootfs/bin"
	cp /bin/busybox "$work/$1/rootfs/bin/busybox"
	tar -C "$work/$1/rootfs" -c -f "$work/$1/files.tar" .
	rm -r "$work/$1/rootfs"
	own_buildah build --isolation chroot --format docker --layers --quiet --tag "$1" "$work/$1"
	own_buildah push --quiet "$1" "docker-archive:$work/$1.tar:docker.io/library/$1:$2"
}
build nginx 1-alpine
build postgres 17-alpine

# In a network namespace no other registry has the port.
unshare --net --fork --kill-child --pid sh -eu -c '
	/bin/busybox ip link set lo up
	"$1/run" >"$1/log" 2>&1 &
	push() {
		for n in 1 2 3 4 5 6 7 8 9 10; do
			! skopeo copy --quiet --dest-tls-verify=false "docker-archive:$2/$3.tar" "docker://127.0.0.1:5000/library/$3:$4" || return 0
			sleep 1
		done
		return 1
	}
	push "$1" "$2" nginx 1-alpine
	push "$1" "$2" postgres 17-alpine
' push "$out" "$work"

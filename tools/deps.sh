#!/bin/sh
# Usage: tools/deps.sh GROUP...
# Makes sure that the machine has what the groups "build", "netplugins", "test", "lint", "vm", "arm64",
# "examples", "bench" and "release" need. On Debian and its derivatives it installs only the missing
# packages; on other systems it lists them on one line, and exits with 1.
set -eu

# One line for each dependency: the group, the Debian package, and a shell test that succeeds
# if the dependency is installed by other means.
needs() {
	cat <<-'END'
		build gcc            command -v gcc
		build libc6-dev      test -e "$(gcc -print-file-name=libc.a)"
		build pkg-config     command -v pkg-config
		build libseccomp-dev pkg-config --exists libseccomp && test -e "$(gcc -print-file-name=libseccomp.a)"
		netplugins iptables      test -x /usr/sbin/xtables-nft-multi
		netplugins nftables      test -x /usr/sbin/nft
		test  gnupg          command -v gpg
		test  xz-utils       command -v xz
		test  bzip2          command -v bzip2
		test  iproute2       command -v ip
		test  util-linux     command -v nsenter
		test  fuse-overlayfs command -v fuse-overlayfs
		test  procps         command -v ps
		test  dnsmasq-base   command -v dnsmasq
		test  busybox-static test -x /bin/busybox && ! ldd /bin/busybox
		test  systemd        test -x /lib/systemd/systemd-journald && command -v journalctl
		test  apparmor       ! grep -q Y /sys/module/apparmor/parameters/enabled || command -v apparmor_parser
		test  dpkg           command -v dpkg-deb
		test  mmdebstrap     command -v mmdebstrap
		test  docker-registry command -v docker-registry
		test  containernetworking-plugins test -x /usr/lib/cni/bridge
		test  skopeo         command -v skopeo
		test  umoci          command -v umoci
		test  buildah        command -v buildah
		test  ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
		lint  cppcheck       command -v cppcheck
		lint  musl-tools     command -v musl-gcc
		vm    qemu-system-x86 command -v qemu-system-x86_64
		vm    e2fsprogs      command -v mke2fs
		vm    bsdutils       command -v script
		vm    dpkg           command -v dpkg-deb
		vm    apparmor       command -v apparmor_parser
		arm64 qemu-system-arm command -v qemu-system-aarch64
		arm64 gcc-aarch64-linux-gnu command -v aarch64-linux-gnu-gcc
		arm64 libc6-dev-arm64-cross test -e "$(aarch64-linux-gnu-gcc -print-file-name=libc.a)"
		arm64 mmdebstrap     command -v mmdebstrap
		arm64 e2fsprogs      command -v mke2fs
		examples qemu-system-x86 command -v qemu-system-x86_64
		examples qemu-system-common test -x /usr/lib/qemu/virtiofsd
		examples dpkg        command -v dpkg-deb
		examples crun        test -x /usr/bin/crun
		examples busybox-static test -x /bin/busybox && ! ldd /bin/busybox
		bench runc           command -v runc
		bench crun           command -v crun
		bench conmon         command -v conmon
		bench podman         command -v podman
		bench netavark       test -x /usr/lib/podman/netavark
		bench iproute2       command -v ip
		release mmdebstrap   command -v mmdebstrap
		release lintian      command -v lintian
		release gnupg        command -v gpg
		release util-linux   command -v unshare
		release ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
	END
}

# missing prints the missing packages of the groups, on one line.
missing() {
	for group in "$@"; do
		needs | while read -r of package check; do
			[ "$of" = "$group" ] || continue
			sh -c "$check" >/dev/null 2>&1 || printf '%s ' "$package"
		done
	done
}

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

if ! command -v go >/dev/null 2>&1; then
	echo "deps: go is missing: install Go 1.26 or newer from https://go.dev/dl/ and put it in PATH" >&2
	exit 1
fi
lack=$(missing "$@")
[ -n "$lack" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
	echo "deps: missing here (names of Debian's packages): $lack" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null 2>&1; then
	echo "deps: missing, and only root can install them: $lack" >&2
	exit 1
fi
echo "deps: installing $lack" >&2
# shellcheck disable=SC2086 # a list of package names
install_all() {
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $lack </dev/null
}
install_all >/dev/null 2>&1 || { as_root apt-get update -q && install_all; } >&2
lack=$(missing "$@")
if [ -n "$lack" ]; then
	echo "deps: installed, and still missing: $lack" >&2
	exit 1
fi

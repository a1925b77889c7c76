# shellcheck shell=sh disable=SC2154 # $root is build.sh's
# The CNI project's plugins, static, of the version in go.mod; Debian's iptables and nft.
plugins=github.com/containernetworking/plugins/plugins
set --
for plugin in main/bridge main/dummy main/host-device main/ipvlan main/loopback main/macvlan main/ptp main/tap main/vlan \
	ipam/dhcp ipam/host-local ipam/static meta/bandwidth meta/firewall meta/portmap meta/sbr meta/tuning meta/vrf; do
	set -- "$@" "$plugins/$plugin"
done
go_programs "$root/opt/cni/bin/" "$@"
# shellcheck disable=SC2046 # a list of files without spaces
take_program /usr/sbin/nft /usr/sbin/xtables-nft-multi $(cd "${DEBIAN:-/}" && ls usr/lib/"$triplet"/xtables/*.so | sed 's,^,/,')
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
	ln -s xtables-nft-multi "$root/usr/sbin/$name"
done
# Addresses that host-local has given away are about links, which a restart of the machine removes.
ln -s /run/network/cni "$root/var/lib/cni"

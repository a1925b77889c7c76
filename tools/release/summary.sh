#!/bin/sh
# Usage: tools/release/summary.sh DIST
# Prints what a release has: its files with their sizes, the fingerprint of the key that has signed it, and the commands
# that install it.
set -eu

cd "$1"
arch=$(dpkg --print-architecture)
aci=$(ls "$PWD"/aci-*-linux-"$arch")
echo "The release in $PWD:"
for file in *; do
	case $file in
	*.asc) ;;
	*) stat -c '%s %n' "$file" | numfmt --to=iec-i --suffix=B --padding=10 ;;
	esac
done
fingerprint=$("$aci" verify --key stager-key.asc SHA512SUMS)
echo "Signed by the key ${fingerprint##* } (stager-key.asc)."
echo 'Next, as root:'
echo "  cd $PWD && sha512sum --check --quiet SHA512SUMS && dpkg --install stager_*_$arch.deb kurma-launcher_*_$arch.deb kurma-netplugins_*_$arch.deb"
echo "  dpkg --install kurma-cri_*_$arch.deb # on a node of Kubernetes"
echo "  launcher trust add --fingerprint ${fingerprint##* } /usr/share/kurma/stager-key.asc"

#!/bin/sh
# Usage: tools/sign.sh ACI FILE...
# Signs files with the program ACI: FILE.asc is the signature of FILE. The private key file KEY signs, or the key GPG of your
# gpg agent. Without either, one throwaway key signs all, and FILE.pub is its public half.
set -eu
umask 022

aci=$1
shift
for file in "$@"; do rm -f "$file.pub"; done
if [ -n "${GPG:-}" ]; then
	exec "$aci" sign --gpg "$GPG" "$@"
elif [ -n "${KEY:-}" ]; then
	exec "$aci" sign --key "$KEY" "$@"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it
"$aci" key --new "throwaway key of ${1##*/}" -o "$work/key"
"$aci" sign --key "$work/key" "$@"
for file in "$@"; do "$aci" key --public "$work/key" -o "$file.pub"; done

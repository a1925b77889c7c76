#!/bin/sh
# Usage: ./build.sh
# Builds bin/stager, the tools bin/launcher and bin/aci in the version of go.mod, and the image out/stager.aci with its
# signature. KEY is the private key that signs; the first build makes one, outside of the folder.
set -eu
umask 022
cd "$(dirname "$0")"
version=${VERSION:-0.1.0}
name=$(basename "$(go list -m)")
key=${KEY:-${XDG_CONFIG_HOME:-$HOME/.config}/$name/private.asc}
mkdir -p bin out
work=$(mktemp -d out/work-XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

for tool in build/aci launcher; do
	CGO_ENABLED=0 go build -trimpath -o bin/ "kurma.io/stager/$tool"
done
CGO_ENABLED=1 go build -trimpath -buildvcs=false -tags 'seccomp netgo osusergo' \
	-ldflags "-s -w -X main.version=$version -linkmode external -extldflags '-static'" -o bin/stager .

# A call-in is a link to the program. Other files of the image go beside it, at their paths in the stager's root.
program=$(go run kurma.io/stager/names/print)
mkdir -p "$work/opt/stager"
for callin in info; do
	ln -s "/$program" "$work/opt/stager/$callin"
done

if [ ! -e "$key" ]; then
	mkdir -p "$(dirname "$key")"
	bin/aci key --new "key of $name" -o "$key"
fi
bin/aci key --public "$key" -o out/stager.aci.pub
bin/aci build --manifest aci-manifest.json --stager bin/stager --add "$work" --version "$version" --key "$key" \
	--isolator example.com/template/first-killed --config-key infoFile -o out/stager.aci

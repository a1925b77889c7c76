#!/bin/sh
# Usage: tools/version.sh
# Prints the version of this tree: by git describe, from the newest tag vX.Y.Z; without such a
# tag, the version in aci-manifest.json, the number of commits and the commit; outside of a git
# repository, the version in aci-manifest.json. A tree with changes ends in "-dirty".
set -eu
cd "$(dirname "$0")/.."

base() { sed -n 's/.*"name": "version", "value": "\([^"]*\)".*/\1/p' aci-manifest.json; }

if [ ! -e .git ] || ! command -v git >/dev/null || ! head=$(git rev-parse --short=12 HEAD 2>/dev/null); then
	base
	exit
fi
if version=$(git describe --tags --match 'v[0-9]*' --abbrev=12 --dirty 2>/dev/null); then
	echo "${version#v}"
	exit
fi
dirty=
git diff-index --quiet HEAD -- 2>/dev/null || dirty=-dirty
echo "$(base)-$(git rev-list --count HEAD)-g$head$dirty"

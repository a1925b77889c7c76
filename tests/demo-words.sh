# shellcheck shell=sh disable=SC2154 # bin and state are variables of the scripts that include this file
# What the demos print, and how they end early.

fail() {
	echo "demo: $*" >&2
	exit 1
}

say() { printf '\n== %s\n' "$*"; }

# show runs a command after showing it.
show() {
	printf '$ %s\n' "$*" | sed "s,$bin/,,; s, --config $state/kurmad.json --state $state,,"
	"$@"
}
launcher() { show "$bin/launcher" --config "$state/kurmad.json" --state "$state" "$@"; }

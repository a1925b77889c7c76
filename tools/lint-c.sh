#!/bin/sh
# Usage: tools/lint-c.sh
# Checks the C files with gcc's warnings and analyser and with cppcheck. It also checks that their
# constructors recognize the program's part with a C library that passes them no arguments.
set -eu
cd "$(dirname "$0")/.."
files=$(git ls-files 'pid1/*.c' 'callins/plain/*.c' ':!pid1/testdata')
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM # dash runs no trap of EXIT when a signal ends it

# shellcheck disable=SC2086 # a list of files
for file in $files; do
	gcc -O2 -Wall -Wextra -Werror -fanalyzer -Iinternal/c -c -o "$dir/analysed.o" "$file"
done
# To cppcheck, a member that only the kernel or a compiler reads looks unused.
# shellcheck disable=SC2086
cppcheck -Iinternal/c --quiet --enable=warning,style,performance,portability --suppress=unusedStructMember --error-exitcode=1 $files

# musl does not bring the kernel's headers.
headers="-idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)"
cat >"$dir/main.c" <<'END'
#include <stdio.h>
#include "pid1/first.h"
int main(void)
{
	pid_t seed;

	puts(first_channel(&seed) >= 0 ? "supervisor" : "main");
	return 0;
}
END
# shellcheck disable=SC2086
musl-gcc -static -O2 -Wall -Wextra -Werror -Iinternal/c -I. $headers -o "$dir/stager" "$dir/main.c" $files
is() {
	[ "$2" = "$3" ] || { echo "lint-c: with musl, $1 is \"$3\" and not \"$2\"" >&2; exit 1; }
}
is '"stager run"' main "$("$dir/stager" run)"
is 'the shim without a plan' '' "$(_STAGER_SHIM=77 "$dir/stager" 2>&1 || true)"
if [ "$(id -u)" = 0 ]; then
	# It must not find a cgroup to make its own in.
	is '"stager"' supervisor "$(unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup && cd "$1" && ./stager' sh "$dir")"
fi

#!/bin/sh
set -e
# Options alone are the server's.
if [ "${1#-}" != "$1" ] || [ "${1%.conf}" != "$1" ]; then
	set -- redis-server "$@"
fi
if [ "$1" = redis-server ]; then
	umask 0077
	touch /data/writable && rm /data/writable
fi
exec "$@"

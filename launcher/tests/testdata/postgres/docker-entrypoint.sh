#!/bin/sh
set -e
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
	initdb --auth=trust --locale=C --encoding=UTF8
	for script in /docker-entrypoint-initdb.d/*.sql; do
		postgres --single -j postgres <"$script"
	done
fi
exec "$@"

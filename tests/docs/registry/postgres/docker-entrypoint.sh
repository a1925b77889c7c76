#!/bin/sh
# The first start makes the cluster in the volume, with the password of POSTGRES_PASSWORD for connections by TCP.
set -e
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
	echo "${POSTGRES_PASSWORD:?}" >/tmp/password
	initdb --auth-local=trust --auth-host=scram-sha-256 --pwfile=/tmp/password --locale=C --encoding=UTF8
	rm /tmp/password
fi
exec "$@"

#!/bin/sh
set -e
if [ "$1" = nginx ]; then
	sed "s/\${NGINX_PORT}/$NGINX_PORT/" /etc/nginx/templates/default.conf.template >/tmp/nginx.conf
	set -- "$@" -c /tmp/nginx.conf
fi
exec "$@"

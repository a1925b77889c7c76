# Debian's nginx, with a configuration that serves /data and logs to the app's
# own output.
debian nginx nginx-common
take_program usr/sbin/nginx
take etc/nginx/mime.types
cp "$recipe/nginx.conf" "$root/etc/nginx/nginx.conf"
chmod 644 "$root/etc/nginx/nginx.conf"
users www-data:33
folder 755 33 var/lib/nginx
folder 755 0 data
folder 755 0 run
folder 1777 0 tmp

# Debian's redis.
debian redis-server redis-tools
take_program usr/bin/redis-check-rdb usr/bin/redis-cli
ln -s redis-check-rdb "$root/usr/bin/redis-server" # one program, as in the package
users redis:100
folder 755 100 var/lib/redis
folder 1777 0 tmp

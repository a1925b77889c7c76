# Debian's PostgreSQL; its cluster is made at the first start, which needs a shell.
busybox
debian postgresql-15 postgresql-client-15
bin=usr/lib/postgresql/15/bin
take_program $bin/postgres $bin/initdb $bin/psql usr/lib/postgresql/15/lib/plpgsql.so
take usr/lib/postgresql/15/lib/dict_snowball.so usr/share/postgresql/15
users postgres:101
folder 700 101 var/lib/postgresql
folder 2775 101 var/run/postgresql
folder 1777 0 tmp

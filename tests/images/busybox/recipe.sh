# One static program that is a whole system; the tests' work horse.
busybox
users user:1000
folder 1777 0 tmp
folder 700 0 root

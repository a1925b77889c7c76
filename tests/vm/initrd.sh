#!/bin/busybox sh
# The first program of the virtual machine: finds its disk and goes there.
b=/bin/busybox
$b mount -t devtmpfs dev /dev
$b modprobe -a virtio_pci virtio_blk
$b mount -t ext4 /dev/vda /root
exec $b switch_root /root /init

#!/bin/busybox sh
# shellcheck shell=dash
# The first process: loads the drivers of the disks, puts a file system in memory over the read-only root, goes there.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "$module"; done < /modules/order
tries=0
while [ ! -b /dev/vdd ] && [ "$tries" -lt 300 ]; do sleep 0.1; tries=$((tries + 1)); done
mkdir -p /disk /memory
mount -t ext4 -o ro /dev/vda /disk
mount -t tmpfs -o mode=755 memory /memory
mkdir -p /memory/changes /memory/work
mount -t overlay -o lowerdir=/disk,upperdir=/memory/changes,workdir=/memory/work root /root
mkdir -p /root/usr/lib/modules
mount -t ext4 -o ro /dev/vdb /root/usr/lib/modules
mount --move /dev /root/dev
umount /sys
umount /proc
exec switch_root /root /sbin/init

#!/bin/busybox sh
# shellcheck shell=dash
# The first process in a machine of the box: loads the drivers of the disk, mounts it, and hands over to systemd.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "$module"; done < /modules/order
tries=0
while [ ! -b /dev/vda ] && [ "$tries" -lt 300 ]; do sleep 0.1; tries=$((tries + 1)); done
mount -t ext4 /dev/vda /root
mount --move /dev /root/dev
umount /sys
umount /proc
exec switch_root /root /lib/systemd/systemd

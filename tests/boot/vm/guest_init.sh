#!/bin/bash
# The init of the guest: unpacks the job from its disk, runs it, packs what it left in out/, and switches off.
export PATH=/opt/nodeagent/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
hostname node-a
ip link set lo up
mkdir -p /job
cd /job || exit 1
tar xf /dev/vdc
mkdir -p out
echo "guest: starting the job $(cut -d' ' -f1 /proc/uptime) s after the kernel"
bash ./job.sh
echo "guest: status $? $(cut -d' ' -f1 /proc/uptime) s after the kernel"
tar cf /dev/vdd -C out .
sync
echo o > /proc/sysrq-trigger
sleep 60

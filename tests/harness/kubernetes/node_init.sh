#!/bin/sh
# The first process of a node: node_init.sh NAME PLACE. Its mount, process, host name and control group namespaces are new.
#
# Everything it starts and mounts ends with it. What is on disk is in PLACE; /run and /var/log are the node's own and empty, so that
# host paths of pods, sockets and named network namespaces are not those of another node.
set -e
name=$1
place=$2
groups=$(cat /proc/self/cgroup)

hostname "$name"
mount --make-rshared /
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/log
mkdir -p /run/lock /run/netns

# /sys of the node's network, with the control groups as the node sees them.
mount -t sysfs sysfs /sys
if echo "$groups" | grep -qv '^0:'; then
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    echo "$groups" | while IFS=: read -r _ controllers _; do
        case $controllers in
            "") continue ;;
            name=*) options=none,$controllers directory=${controllers#name=} ;;
            *) options=$controllers directory=$controllers ;;
        esac
        mkdir "/sys/fs/cgroup/$directory"
        mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/$directory"
    done
else
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    # A group with processes of its own cannot give controllers to groups below it.
    mkdir -p /sys/fs/cgroup/init
    echo $$ >/sys/fs/cgroup/init/cgroup.procs
    sed 's/[^ ]\+/+&/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control
fi

containerd --config "$place/containerd.toml" >>"$place/containerd.log" 2>&1 &
# It ends where containerd does not answer yet, and is started again, as by its unit of systemd.
while ! "$place/kubelet"; do sleep 1; done >>"$place/kubelet.log" 2>&1 &
echo "$name has started"
# Whose parents have ended become children of this process, and end without being waited for.
trap '' CHLD
exec sleep infinity

#!/usr/bin/env bash
# The network of a pod, as a container runtime would make it, and its resolv.conf, as kubelet would: pod.sh up|down NAME
#
# A namespace, a link with host routes at both ends, the machine as gateway. NAME ends with the worker's number, and that
# of the pod: echo-1-2; or has no pod's number: caller-1, for a pod that only asks and is in no list.
set -euo pipefail
: "${PODS:?}" "${PODS6:?}" "${DNS:?}"
action=${1:?up or down} pod=${2:?name of the pod}

ip netns delete "$pod" 2>/dev/null || true
rm -rf "/etc/netns/$pod"
if [ "$action" = down ]; then exit; fi

# What `ip netns exec` puts in the place of /etc/resolv.conf.
domains=$(awk '$1 == "search" { $1 = ""; found = $0 } END { print found }' /etc/resolv.conf)
mkdir -p "/etc/netns/$pod"
cat >"/etc/netns/$pod/resolv.conf" <<RESOLVER
search default.svc.cluster.local svc.cluster.local cluster.local$domains
nameserver $DNS
options ndots:5
RESOLVER

IFS=- read -r _ worker number <<<"$pod"
host=${number:+1$number}
host=${host:-250}
ip netns add "$pod"
ip link add "$pod" type veth peer name eth0 netns "$pod"
ip link set "$pod" up
ip -n "$pod" link set lo up
ip -n "$pod" link set eth0 up
for family in 4 6; do
    if [ $family = 4 ]; then
        range=$PODS.$worker. bits=32 flag=
    else
        range=$PODS6:$worker:: bits=128 flag=nodad
    fi
    # shellcheck disable=SC2086  # an empty flag is no argument
    ip "-$family" address add "${range}1/$bits" dev "$pod" $flag
    ip "-$family" route replace "$range$host/$bits" dev "$pod"
    # shellcheck disable=SC2086
    ip -n "$pod" "-$family" address add "$range$host/$bits" dev eth0 $flag
    ip -n "$pod" "-$family" route add default via "${range}1" dev eth0 onlink
done

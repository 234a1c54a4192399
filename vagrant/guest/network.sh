#!/usr/bin/env bash
# The machine's part of the cluster's network, beyond the IPv4 address that Vagrant gives it: an IPv6 address, and a route
# to the pods of every other worker.
set -euo pipefail
: "${NUMBER:?}" "${WORKERS:?}" "${NETWORK:?}" "${PODS:?}" "${PODS6:?}" "${ROUTES=}"

interface=
for _ in $(seq 300); do
    interface=$(ip -o -4 address show to "$NETWORK.$((10 + NUMBER))" | awk '{ print $2; exit }')
    if [ -n "$interface" ]; then break; fi
    sleep 0.2
done
if [ -z "$interface" ]; then
    echo "no interface has the address $NETWORK.$((10 + NUMBER))" >&2
    exit 1
fi

ip -6 address replace "fd00:56::$((10 + NUMBER))/64" dev "$interface" nodad
for worker in $(seq "$WORKERS"); do
    if [ "$worker" != "$NUMBER" ]; then
        ip route replace "$PODS.$worker.0/24" via "$NETWORK.$((10 + worker))"
        ip -6 route replace "$PODS6:$worker::/64" via "fd00:56::$((10 + worker))"
    fi
done
for route in ${ROUTES//,/ }; do
    ip route replace "${route%%=*}" via "${route#*=}"
done

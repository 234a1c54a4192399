#!/usr/bin/env bash
# Makes the Debian 12 tree with the neighbours' own programs in it, from the tree that the other containers boot from. None of them starts
# by itself.
#
#     tests/boot/neighbours/build_root.sh BASE DIR
set -euo pipefail

base=$(realpath "${1:?the tree to begin with}")
target=$(realpath -m "${2:?directory to build}")
neighbours=(firewalld ufw docker.io podman netavark aardvark-dns libvirt-daemon-system libvirt-daemon-config-network libvirt-clients
    dnsmasq-base network-manager keepalived iptables conntrackd conntrack fail2ban dbus busybox-static crun python3-nftables)
# ufw and this one exclude each other: its files are put beside, for the machine that wants them.
beside=(netfilter-persistent iptables-persistent)

rm -rf "$target.new"
cp -a "$base" "$target.new"
trap 'umount "$target.new/proc" 2>/dev/null || true' EXIT
mount -t proc proc "$target.new/proc"
printf '#!/bin/sh\nexit 101\n' >"$target.new/usr/sbin/policy-rc.d"
chmod +x "$target.new/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$target.new/etc/resolv.conf"
inside() { chroot "$target.new" env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
for setting in "${!http_proxy@}" "${!https_proxy@}"; do export "${setting?}"; done
inside apt-get update -qq
inside apt-get install -y -qq --no-install-recommends "${neighbours[@]}" >/dev/null
inside sh -ec 'mkdir -p /beside && cd /beside && apt-get download -qq "$@"' sh "${beside[@]}"
umount "$target.new/proc"
rm -rf "$target.new/usr/sbin/policy-rc.d" "$target.new/etc/resolv.conf" "$target.new"/var/cache/apt/archives/*.deb "$target.new"/var/lib/apt/lists/*
for unit in firewalld ufw docker.service docker.socket containerd libvirtd.service libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket \
    libvirt-guests virtlockd.socket virtlogd.socket NetworkManager NetworkManager-wait-online NetworkManager-dispatcher keepalived conntrackd \
    fail2ban podman.service podman.socket podman-restart podman-auto-update.timer podman-auto-update.service dnsmasq polkit; do
    chroot "$target.new" systemctl disable -q "$unit" 2>/dev/null || true
done
rm -rf "$target"
mv "$target.new" "$target"
touch "$target"

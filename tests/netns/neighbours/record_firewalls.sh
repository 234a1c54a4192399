#!/usr/bin/env bash
# Records what firewalld and ufw of Debian 12 write with their defaults, into rules/. Run as root; nothing is installed:
# the packages are only unpacked below a temporary directory, and both run in a network and mount namespace of their own.
# firewalld is used as the library that its daemon is, without D-Bus.
#
#     tests/netns/neighbours/record_firewalls.sh
set -euo pipefail

rules=$(realpath "$(dirname "$0")/rules")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
(
    cd "$work"
    apt-get download -qq ufw firewalld python3-firewall python3-nftables python3-gi libgirepository-1.0-1 gir1.2-glib-2.0 \
        python3-cap-ng libcap-ng0 python3-dbus libnftables1 libglib2.0-0 libdbus-1-3 libffi8
    for package in ./*.deb; do dpkg -x "$package" root; done
)

cat > "$work/inside" <<'END'
set -euo pipefail
work=$1
mount -t tmpfs none /mnt
mkdir /mnt/upper /mnt/work
mount -t overlay overlay -o "lowerdir=$work/root/usr:/usr" /usr
mount -t overlay overlay -o "lowerdir=$work/root/lib:/usr/lib" /usr/lib
mount -t overlay overlay -o "lowerdir=$work/root/etc:/etc,upperdir=/mnt/upper,workdir=/mnt/work" /etc
ip link set lo up
cp /usr/share/ufw/iptables/*.rules /usr/share/ufw/ufw.conf /etc/ufw/

/usr/bin/python3 -c 'from firewall.core.fw import Firewall; Firewall().start()' > /dev/null
nft list table inet firewalld > "$work/firewalld"
nft flush ruleset
/usr/bin/python3 /usr/sbin/ufw allow 22/tcp > /dev/null
/usr/bin/python3 /usr/sbin/ufw --force enable > /dev/null
iptables-save -t filter > "$work/ufw-IPv4"
ip6tables-save -t filter > "$work/ufw-IPv6"
END
unshare --net --mount bash "$work/inside" "$work"

said='as record_firewalls.sh found it'
{ echo "# firewalld 1.3.3 (Debian 12), its default configuration, $said."; cat "$work/firewalld"; } > "$rules/firewalld.nft"
for family in IPv4 IPv6; do
    { echo "# ufw 0.36.2 (Debian 12) after \`ufw allow 22/tcp; ufw enable\`, $said."; grep -v '^#' "$work/ufw-$family"; } \
        > "$rules/ufw-$family.iptables"
done

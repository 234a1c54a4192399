#!/usr/bin/env bash
# Makes the tree of Debian or Ubuntu that the containers of these tests boot from: systemd as PID 1, and nothing of ours.
#
#     tests/boot/container/build_root.sh DIR [RELEASE]
set -euo pipefail

target=$(realpath -m "${1:?directory to build}")
release=${2:-bookworm}
mkdir -p "$(dirname "$target")"
rm -rf "$target.new"
mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --include=systemd-sysv,init-system-helpers,python3,nftables,iproute2,iputils-ping,procps,kmod,openssl,conntrack,etcd-server,etcd-client \
    "$release" "$target.new" "$("$(dirname "$0")/../../tools/archive_of.sh" "$release")"
# An etcd is there for the tests that want one, and does not start by itself.
chroot "$target.new" systemctl disable -q etcd.service
# The name comes from the container, and no job of Debian's own runs beside the tests.
rm -f "$target.new/etc/hostname" "$target.new"/var/cache/apt/archives/*.deb
chroot "$target.new" systemctl mask -q apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    fstrim.timer getty.target console-getty.service 2>/dev/null || true
rm -rf "$target"
mv "$target.new" "$target"
touch "$target"

#!/usr/bin/env bash
# Installs a package for arm64 in a Debian tree for arm64, and asks it: install_emulated.sh TREE DEB EMULATOR
#
# For a user namespace: there the kernel has formats of programs for it alone (Linux 6.7), and nothing of the machine is changed. The tree
# is only unpacked, so dpkg knows of no package that this one needs.
set -euo pipefail
tree=$1
mkdir "$tree/formats"
mount -t binfmt_misc binfmt_misc "$tree/formats"
printf '%s' ":aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$3:F" \
    >"$tree/formats/register"
mount --rbind /dev "$tree/dev"
mount -t proc proc "$tree/proc"
cp "$2" "$tree/package.deb"
chroot "$tree" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -ec '
    uname -m
    dpkg --install --force-depends /package.deb
    nodeagent version
    nodeagent config check --config /etc/nodeagent/nodeagent.yaml
    systemd-analyze verify --man=no nodeagent.service nodeagent-apiserver.service
    getent passwd nodeagent nodeagent-apiserver
    dpkg --purge nodeagent
'

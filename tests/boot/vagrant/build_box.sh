#!/usr/bin/env bash
# Makes a box for vagrant-libvirt that stands for debian/bookworm64 where there is neither a network nor hardware
# virtualization: Debian 12 with what Vagrant expects of a box, started with a kernel from outside, emulated.
#
#     tests/boot/vagrant/build_box.sh DIR KERNEL      then: DIR/bookworm.box, DIR/vmlinuz, DIR/initrd
#
# KERNEL is a directory of tests/boot/vm/build_kernel.sh. The box is bound to where it was built: its Vagrantfile names
# the kernel in DIR.
set -euo pipefail

target=$(realpath -m "${1:?directory to build in}")
kernel=$(realpath "${2:?directory with a kernel}")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$target"
root=$work/root

mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --include=systemd-sysv,dbus,udev,kmod,init-system-helpers,iproute2,iputils-ping,procps,openssh-server,sudo,python3 \
    --include=openssl,nftables,conntrack \
    bookworm "$root" "$("$here/../../tools/archive_of.sh" bookworm)"
mkdir "$work/modules"
debugfs -R "rdump / $work/modules" "$kernel/modules.img" 2>/dev/null
mkdir -p "$root/usr/lib/modules"
cp -r "$work"/modules/[0-9]* "$root/usr/lib/modules/"

# What Vagrant expects: its user with its well-known key (it puts a new one in its place), sudo without a password.
chroot "$root" useradd --create-home --shell /bin/bash vagrant
echo 'vagrant ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/vagrant"
install -d -m 700 "$root/home/vagrant/.ssh"
install -m 600 "$(find /usr/share -path '*vagrant*/keys/vagrant.pub' -print -quit)" \
    "$root/home/vagrant/.ssh/authorized_keys"
chroot "$root" chown -R vagrant: /home/vagrant/.ssh
echo 'UseDNS no' > "$root/etc/ssh/sshd_config.d/box.conf"
chroot "$root" ssh-keygen -q -A

# Sorts after the file that Vagrant writes for the private network, and so leaves that interface alone.
printf '[Match]\nName=en* eth0\n[Network]\nDHCP=yes\n' > "$root/etc/systemd/network/90-dhcp.network"
chroot "$root" systemctl --quiet enable systemd-networkd ssh 2>/dev/null
chroot "$root" systemctl --quiet mask systemd-networkd-wait-online.service apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer e2scrub_all.timer fstrim.timer getty.target 2>/dev/null
: > "$root/etc/machine-id"
: > "$root/etc/fstab"
: > "$root/etc/resolv.conf"
echo bookworm > "$root/etc/hostname"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*

mkdir "$work/box" "$work/first"
mke2fs -q -t ext4 -E lazy_itable_init=1 -d "$root" "$work/disk" 1500M
qemu-img convert -O qcow2 "$work/disk" "$work/box/box.img"
echo '{"provider": "libvirt", "format": "qcow2", "virtual_size": 2}' > "$work/box/metadata.json"
sed "s|@DIRECTORY@|$target|" "$here/box.Vagrantfile.in" > "$work/box/Vagrantfile"
# An archive after an archive: its files come in the place of those before.
install -m 755 "$here/box_init.sh" "$work/first/init"
(cat "$kernel/initrd" && cd "$work/first" && echo init | cpio --quiet -o -H newc | gzip) > "$target/initrd"
cp "$kernel/vmlinuz" "$target/vmlinuz"
tar -C "$work/box" -cf "$target/bookworm.box.new" metadata.json Vagrantfile box.img
mv "$target/bookworm.box.new" "$target/bookworm.box"

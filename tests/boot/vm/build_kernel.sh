#!/usr/bin/env bash
# Takes the cloud kernel of a Debian release out of its package, with a disk of its modules and a first root file
# system that finds the disks.
#
#     tests/boot/vm/build_kernel.sh DIR RELEASE      then: DIR/vmlinuz, DIR/initrd, DIR/modules.img
set -euo pipefail

target=$(realpath -m "${1:?directory to build in}")
release=${2:?Debian release to take the kernel from}
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$target"

"$here/../../tools/prepare_apt.sh" "$work" "$release"
package=$(apt-cache -c "$work/apt.conf" depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
(
    cd "$work"
    apt-get -c "$work/apt.conf" download "$package"
    dpkg -x ./"$package"_*.deb tree
)
# Until Debian 12 modules are in /lib; since then only in /usr/lib, and depmod looks in /lib.
[ -d "$work/tree/lib" ] || ln -s usr/lib "$work/tree/lib"
version=$(ls "$work/tree/lib/modules")
depmod -b "$work/tree" "$version"

first=$work/first
mkdir -p "$first"/{bin,dev,proc,sys,root,modules}
cp /bin/busybox "$first/bin/"
for module in virtio_pci virtio_blk overlay; do
    modprobe -d "$work/tree" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    name=$(basename "$file")
    case $name in
        *.xz) xz -dc "$file" > "$first/modules/${name%.xz}" ;;
        *) cp "$file" "$first/modules/$name" ;;
    esac
    echo "/modules/${name%.xz}" >> "$first/modules/order"
done
install -m 755 "$here/first_init.sh" "$first/init"
(cd "$first" && find . | cpio --quiet -o -H newc | gzip -1) > "$target/initrd"

size=$(( $(du -sm --apparent-size "$work/tree/lib/modules" | cut -f1) * 13 / 10 + 32 ))
rm -f "$target/modules.img"
mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1 -d "$work/tree/lib/modules" "$target/modules.img" "${size}M"
cp "$work/tree/boot/vmlinuz-$version" "$target/vmlinuz"

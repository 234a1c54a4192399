#!/usr/bin/env bash
# Puts the etcd of Debian 12 (3.4.23) below DIR, so that the storage of the API server can be tested with it. Nothing is
# installed: that would start a service on port 2379. The packages are only unpacked.
#
#     tests/tools/fetch_etcd.sh DIR      then: DIR/etcd --version, DIR/etcdctl version
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
if [ -x "$target/etcd" ] && [ -x "$target/etcdctl" ]; then touch "$target/etcd"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$target"

mirror=$(awk '/^(URIs:|deb )/ { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.* 2>/dev/null || true)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} bookworm main" \
    > "$work/sources.list"
: > "$work/status"
options=(
    -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$work/lists" -o "Dir::State::Status=$work/status"
    -o "Dir::Cache::Archives=$work/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o APT::Sandbox::User=root -qq
)
apt-get "${options[@]}" update
(
    cd "$work"
    apt-get "${options[@]}" download etcd-server etcd-client
    for file in ./*.deb; do dpkg -x "$file" "$work/unpacked"; done
)
mv "$work/unpacked/usr/bin/etcdctl" "$work/unpacked/usr/bin/etcd" "$target"
touch "$target/etcd"

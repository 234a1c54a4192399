#!/usr/bin/env bash
# Puts the etcd of Debian 12 (3.4.23) below DIR, so that the storage of the API server can be tested with it. Installing it
# would start a service on port 2379.
#
#     tests/tools/fetch_etcd.sh DIR      then: DIR/etcd --version, DIR/etcdctl version
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
if [ -x "$target/etcd" ] && [ -x "$target/etcdctl" ]; then touch "$target/etcd"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(dirname "$(realpath "$0")")/unpack_packages.sh" "$work" bookworm etcd-server etcd-client
mkdir -p "$target"
mv "$work/usr/bin/etcdctl" "$work/usr/bin/etcd" "$target"
touch "$target/etcd"

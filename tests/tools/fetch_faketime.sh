#!/usr/bin/env bash
# Puts Debian's libfaketime below DIR, so that one program of a test can have another clock.
#
#     tests/tools/fetch_faketime.sh DIR
set -euo pipefail

target=$(realpath -m "${1:?directory to put it into}")
if [ -f "$target/libfaketimeMT.so.1" ]; then touch "$target/libfaketimeMT.so.1"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(dirname "$(realpath "$0")")/unpack_packages.sh" "$work" bookworm libfaketime
mkdir -p "$target"
mv "$work"/usr/lib/*/faketime/libfaketimeMT.so.1 "$target"
touch "$target/libfaketimeMT.so.1"

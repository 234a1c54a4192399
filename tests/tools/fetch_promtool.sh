#!/usr/bin/env bash
# Puts Debian's prometheus and promtool below DIR, so that the dashboards' and alerts' expressions are checked by the program that
# runs them. Nothing is installed and nothing started: the package is only unpacked.
#
#     tests/tools/fetch_promtool.sh DIR      then: DIR/promtool check rules FILE
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
if [ -x "$target/promtool" ]; then touch "$target/promtool"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$target"
chmod 755 "$work"
(
    cd "$work"
    apt-get -o APT::Sandbox::User=root -qq download prometheus
    dpkg -x ./prometheus_*.deb "$work/unpacked"
)
mv "$work/unpacked/usr/bin/prometheus" "$work/unpacked/usr/bin/promtool" "$target/"
touch "$target/promtool"

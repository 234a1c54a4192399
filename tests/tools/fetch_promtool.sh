#!/usr/bin/env bash
# Puts Debian 12's prometheus and promtool below DIR, so that the dashboards' and alerts' expressions are checked by the program
# that runs them. Installing them would start a service.
#
#     tests/tools/fetch_promtool.sh DIR      then: DIR/promtool check rules FILE
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
if [ -x "$target/promtool" ]; then touch "$target/promtool"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(dirname "$(realpath "$0")")/unpack_packages.sh" "$work" bookworm prometheus
mkdir -p "$target"
mv "$work/usr/bin/prometheus" "$work/usr/bin/promtool" "$target/"
touch "$target/promtool"

#!/usr/bin/env bash
# Unpacks packages of a Debian release below DIR. Nothing is installed and nothing started. Of names joined by "|" the first
# that the release has is taken.
#
#     tests/tools/unpack_packages.sh DIR RELEASE PACKAGE...
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
release=${2:?Debian release to take the packages from}
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$target"

"$(dirname "$(realpath "$0")")/prepare_apt.sh" "$work" "$release"
packages=()
for names in "$@"; do
    for name in ${names//|/ }; do
        if apt-cache -c "$work/apt.conf" show "$name" > "$work/shown" 2> /dev/null; then break; fi
    done
    packages+=("$name")
done
(
    cd "$work"
    apt-get -c "$work/apt.conf" download "${packages[@]}"
    for file in ./*.deb; do dpkg -x "$file" "$target"; done
)

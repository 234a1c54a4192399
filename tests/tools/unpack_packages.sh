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
mkdir -p "$work/lists/partial" "$work/archives/partial" "$target"

mirror=$(awk '/^(URIs:|deb )/ { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $release main" \
    > "$work/sources.list"
: > "$work/status"
options=(
    -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$work/lists" -o "Dir::State::Status=$work/status"
    -o "Dir::Cache::Archives=$work/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o APT::Sandbox::User=root -qq
)
apt-get "${options[@]}" update
packages=()
for names in "$@"; do
    for name in ${names//|/ }; do
        if apt-cache "${options[@]}" show "$name" > "$work/shown" 2> /dev/null; then break; fi
    done
    packages+=("$name")
done
(
    cd "$work"
    apt-get "${options[@]}" download "${packages[@]}"
    for file in ./*.deb; do dpkg -x "$file" "$target"; done
)

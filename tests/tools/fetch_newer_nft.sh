#!/usr/bin/env bash
# Puts nft 1.1 of Debian 13 beside this machine's own nft, with the libraries it needs and its own dynamic loader, so
# that listings can be checked with both. Nothing is installed: the packages are only unpacked below DIR.
#
#     tests/tools/fetch_newer_nft.sh DIR      then: DIR/nft list ruleset
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
if [ -x "$target/nft" ]; then touch "$target/nft"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$target"

mirror=$(awk '/^(URIs:|deb )/ { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
    /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null || true)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} trixie main" \
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
    apt-get "${options[@]}" download nftables libnftables1 libnftnl11 libmnl0 libgmp10 libjansson4 libedit2 \
        libxtables12 libc6 libbsd0 libmd0 libtinfo6
    for package in ./*.deb; do dpkg -x "$package" "$target"; done
)
loader=$(find "$target" -name 'ld-linux-*.so.*' | head -n 1)
libraries=$(dirname "$(find "$target" -name 'libnftables.so.1' | head -n 1)")
cat > "$target/nft" <<EOF
#!/bin/sh
exec "$loader" --library-path "$libraries:$(dirname "$loader")" "$target/usr/sbin/nft" "\$@"
EOF
chmod +x "$target/nft"

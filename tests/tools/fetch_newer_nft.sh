#!/usr/bin/env bash
# Puts nft 1.1 of Debian 13 beside this machine's own nft, with the libraries it needs and its own dynamic loader, so
# that listings can be checked with both. Nothing is installed: the packages are only unpacked below DIR.
#
#     tests/tools/fetch_newer_nft.sh DIR      then: DIR/nft list ruleset
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
if [ -x "$target/nft" ]; then touch "$target/nft"; exit 0; fi
"$(dirname "$(realpath "$0")")/unpack_packages.sh" "$target" trixie nftables libnftables1 libnftnl11 libmnl0 libgmp10 libjansson4 \
    libedit2 libxtables12 libc6 libbsd0 libmd0 libtinfo6
loader=$(find "$target" -name 'ld-linux-*.so.*' | head -n 1)
libraries=$(dirname "$(find "$target" -name 'libnftables.so.1' | head -n 1)")
cat > "$target/nft" <<EOF
#!/bin/sh
exec "$loader" --library-path "$libraries:$(dirname "$loader")" "$target/usr/sbin/nft" "\$@"
EOF
chmod +x "$target/nft"

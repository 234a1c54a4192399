#!/usr/bin/env bash
# Puts the kubectl of a Debian release beside this machine's own, so that the API server is met by an old one and a new
# one: Debian 12 (bookworm) has 1.20, Debian 13 (trixie) has 1.32. Nothing is installed: the package is only unpacked.
#
#     tests/tools/fetch_kubectl.sh DIR RELEASE      then: DIR/kubectl version --client
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
release=${2:?Debian release to take it from}
if [ -x "$target/kubectl" ]; then touch "$target/kubectl"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial" "$target"

mirror=$(awk '/^(URIs:|deb )/ { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.* 2>/dev/null || true)
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
# Until Debian 12 the program was in kubernetes-client; since then it has a package of its own.
package=kubectl
apt-cache "${options[@]}" show "$package" > "$work/shown" 2> /dev/null || package=kubernetes-client
(
    cd "$work"
    apt-get "${options[@]}" download "$package"
    for file in ./*.deb; do dpkg -x "$file" "$work/unpacked"; done
)
mv "$work/unpacked/usr/bin/kubectl" "$target/kubectl"
touch "$target/kubectl"

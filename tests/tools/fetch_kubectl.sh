#!/usr/bin/env bash
# Puts the kubectl of a Debian release beside this machine's own, so that the API server is met by an old one and a new
# one: Debian 12 (bookworm) has 1.20, in kubernetes-client, Debian 13 (trixie) has 1.32, in a package of its own.
#
#     tests/tools/fetch_kubectl.sh DIR RELEASE      then: DIR/kubectl version --client
set -euo pipefail

target=$(realpath -m "${1:?directory to unpack into}")
release=${2:?Debian release to take it from}
if [ -x "$target/kubectl" ]; then touch "$target/kubectl"; exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$(dirname "$(realpath "$0")")/unpack_packages.sh" "$work" "$release" 'kubectl|kubernetes-client'
mkdir -p "$target"
mv "$work/usr/bin/kubectl" "$target/kubectl"
touch "$target/kubectl"

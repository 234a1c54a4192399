#!/usr/bin/env bash
# Prints the line for apt's list of sources that has the packages of a release of Debian or Ubuntu: tests/tools/archive_of.sh RELEASE
#
# Debian's are fetched from where this machine has its own. The keys of Ubuntu's archive are in a package of Debian 13; they are kept below
# .tools/ubuntu. UBUNTU names a mirror.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=${1:?release}
keys=.tools/ubuntu/usr/share/keyrings/ubuntu-archive-keyring.gpg

case $release in
bookworm | trixie | forky)
    mirror=$(awk '/^(URIs:|deb )/ { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
        /etc/apt/sources.list /etc/apt/sources.list.d/debian.* 2>/dev/null || true)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $release main"
    ;;
*)
    if [ ! -f $keys ]; then
        work=$(mktemp -d)
        trap 'rm -rf "$work"' EXIT
        tests/tools/prepare_apt.sh "$work" trixie >&2
        (cd "$work" && apt-get -c apt.conf download ubuntu-keyring >&2)
        dpkg-deb --extract "$work"/ubuntu-keyring_*.deb .tools/ubuntu
    fi
    echo "deb [signed-by=$(realpath $keys)] ${UBUNTU:-http://archive.ubuntu.com/ubuntu} $release main universe"
    ;;
esac

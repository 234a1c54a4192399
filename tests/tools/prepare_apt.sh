#!/usr/bin/env bash
# Lets apt fetch packages of a Debian release, whatever this machine has: writes WORK/apt.conf, for `apt-get -c` and
# `apt-cache -c`, and fetches the release's lists below WORK.
#
#     tests/tools/prepare_apt.sh WORK RELEASE
set -euo pipefail

work=${1:?directory for lists and packages}
release=${2:?Debian release}
mkdir -p "$work/lists/partial" "$work/archives/partial"

mirror=$(awk '/^(URIs:|deb )/ { for (i = 2; i <= NF; i++) if ($i ~ /^https?:/) { print $i; exit } }' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.* 2>/dev/null || true)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $release main" \
    > "$work/sources.list"
: > "$work/status"
cat > "$work/apt.conf" <<CONF
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State::Lists "$work/lists";
Dir::State::Status "$work/status";
Dir::Cache::Archives "$work/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Sandbox::User "root";
quiet "2";
CONF
apt-get -c "$work/apt.conf" update

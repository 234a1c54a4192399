#!/usr/bin/env bash
# Lets apt fetch packages of a release of Debian or Ubuntu, whatever this machine has: writes WORK/apt.conf, for `apt-get -c` and
# `apt-cache -c`, and fetches the release's lists below WORK.
#
#     tests/tools/prepare_apt.sh WORK RELEASE
set -euo pipefail

work=${1:?directory for lists and packages}
release=${2:?release}
mkdir -p "$work/lists/partial" "$work/archives/partial"

"$(dirname "$0")/archive_of.sh" "$release" > "$work/sources.list"
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

#!/usr/bin/env bash
# Makes the read-only disk that the virtual machines of these tests start from: Debian 12 without an init system, with
# nft, ip and a virtual environment at /opt/nodeagent that holds what the project and its tests depend on, but not the
# project.
#
#     tests/boot/vm/build_root.sh DIR      then: DIR/root.img
set -euo pipefail

target=$(realpath -m "${1:?directory to build in}")
here=$(dirname "$(realpath "$0")")
project=$(realpath "$here/../../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$target"

mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Acquire::Languages "none"' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --include=kmod,nftables,iproute2,iputils-ping,conntrack,iptables,ipset,ipvsadm,procps,python3,python3-venv \
    bookworm "$work/root" "$("$here/../../tools/archive_of.sh" bookworm)"

# The wheels are fetched out here, with this machine's settings for pip; in there is no network.
/usr/bin/python3 -m venv "$work/venv"
/usr/bin/python3 - "$project/pyproject.toml" > "$work/requirements" <<'PYTHON'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    declared = tomllib.load(file)
tools = [tool for tool in declared["dependency-groups"]["dev"] if tool.startswith(("pytest", "hypothesis"))]
print(*declared["project"]["dependencies"], *tools, sep="\n")
PYTHON
grep -o '^[a-z].*==[^ ]*' "$project/requirements/development.txt" >"$work/locked"
mkdir "$work/root/wheels"
"$work/venv/bin/pip" download --quiet --only-binary=:all: --dest "$work/root/wheels" \
    --constraint "$work/locked" --requirement "$work/requirements"
chroot "$work/root" /usr/bin/env -i PATH=/usr/bin:/usr/sbin:/bin:/sbin sh -ec '
    python3 -m venv /opt/nodeagent
    /opt/nodeagent/bin/pip install --quiet --no-index --find-links /wheels /wheels/*.whl
    # pytest compiles plugins its own way, with all that came in their packages, and keeps that: here, where it takes a tenth.
    cd /wheels
    echo "from hypothesis import HealthCheck, given, settings, strategies
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
def test(): pass" > test_plugins.py
    /opt/nodeagent/bin/python -m pytest --quiet -p no:cacheprovider test_plugins.py
'
rm -rf "$work/root/wheels" "$work/root"/var/cache/apt/*
install -m 755 "$here/guest_init.sh" "$work/root/sbin/init"

size=$(( $(du -sm --apparent-size "$work/root" | cut -f1) * 13 / 10 + 64 ))
rm -f "$target/root.img.new"
mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1 -d "$work/root" "$target/root.img.new" "${size}M"
mv "$target/root.img.new" "$target/root.img"

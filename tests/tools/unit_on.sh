#!/usr/bin/env bash
# Runs tests with the Python of another release of Debian or Ubuntu, as root: tests/tools/unit_on.sh RELEASE [pytest's arguments …]
#
# RELEASE: noble has Python 3.12, trixie 3.13, forky 3.14. Nothing of it is installed here: its tree and the locked libraries for its
# Python are kept below .tools/python. The tests see this checkout below /src; what they write is in memory and gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=${1:?release}
shift
tools=${TOOLS:-.tools/python}
tree=$tools/$release

if [ ! -d "$tree" ]; then
    mkdir -p "$tools"
    # What a mirror has of a release that is not stable may be some weeks old, past the date that its list of files has.
    mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Acquire::Languages "none"' --aptopt='Acquire::Check-Valid-Until "false"' \
        --include=python3,python3-dev,ca-certificates,git,iproute2,nftables,openssl,procps,man-db,groff-base,conntrack,iptables,tzdata \
        "$release" "$tree.new" "$(tests/tools/archive_of.sh "$release")"
    mv "$tree.new" "$tree"
fi
minor=$(chroot "$tree" python3 -c 'import sys; print(sys.version_info.minor)')
libraries=$tools/libraries-3.$minor-$(sha256sum requirements/development.txt | cut -c1-16)
if [ ! -d "$libraries" ]; then
    machine=$(uname -m)
    platforms=(--platform "manylinux2014_$machine" --platform "linux_$machine")
    for glibc in $(seq 39 -1 5); do platforms+=(--platform "manylinux_2_${glibc}_$machine"); done
    .venv/bin/pip --quiet --disable-pip-version-check install --no-compile --no-deps --require-hashes --only-binary :all: \
        --implementation cp --python-version "3.$minor" "${platforms[@]}" --target "$libraries.new" --requirement requirements/development.txt
    mv "$libraries.new" "$libraries"
fi

# shellcheck disable=SC2016  # for the inner shell
exec unshare --mount --pid --fork --kill-child bash -ec '
    tree=$1 libraries=$2 checkout=$3
    shift 3
    place=$(mktemp -d)
    trap "umount --lazy $place; rmdir $place" EXIT
    mount -t tmpfs -o mode=755 tmpfs "$place"
    mkdir "$place"/{root,changes,work,changes-src,work-src}
    mount -t overlay -o "lowerdir=$tree,upperdir=$place/changes,workdir=$place/work" overlay "$place/root"
    mkdir -p "$place"/root/{src,libraries}
    mount -t overlay -o "lowerdir=$checkout,upperdir=$place/changes-src,workdir=$place/work-src" overlay "$place/root/src"
    mount --bind -o ro "$libraries" "$place/root/libraries"
    # Also for processes that take nothing from the environment, as `python3 -I` does not.
    printf "/libraries\n/src\n" >"$(echo "$place"/root/usr/local/lib/python3.*/dist-packages)/tests.pth"
    printf "#!/usr/bin/python3\nfrom nodeagent.__main__ import main\nmain()\n" >"$place/root/usr/bin/nodeagent"
    chmod 755 "$place/root/usr/bin/nodeagent"
    mount -t proc proc "$place/root/proc"
    mount --rbind /dev "$place/root/dev"
    mount --rbind /sys "$place/root/sys"
    chroot "$place/root" env -i HOME=/root LANG=C.UTF-8 PATH=/libraries/bin:/usr/sbin:/usr/bin:/sbin:/bin sh -ec \
        "cd /src && python3 --version && exec python3 -m pytest \"\$@\"" sh "$@"
' bash "$(realpath "$tree")" "$(realpath "$libraries")" "$(pwd -P)" "$@"

#!/usr/bin/env bash
# Builds the container image of this tree: deploy/image/build.sh [DIRECTORY [ARCHITECTURE ...]]
#
# Needs root, mmdebstrap, and the package archives of Debian and PyPI, no registry of images and no daemon. Nothing that the image holds is
# run, so every architecture is built on any machine. The same tree and the same Debian packages give the same bytes.
# Result: DIRECTORY/nodeagent-VERSION.tar, an OCI layout with one image for each architecture, and
# DIRECTORY/nodeagent-VERSION-ARCHITECTURE.tar, which `ctr image import` and `docker load` take.
set -euo pipefail
cd "$(dirname "$0")/../.."
output=${1:-dist}
shift $(($# ? 1 : 0))
architectures=${*:-amd64 arm64}
python=${PYTHON:-.venv/bin/python}
export PYTHON=$python
system_python=/usr/bin/python3
release=bookworm
# Its modules are compiled here, so this machine's Python must be that of the release.
minor=11

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
umask 022

if [ "$($system_python -c 'import sys; print(sys.version_info.minor)')" != $minor ]; then
    echo "deploy/image/build.sh: $system_python is not Python 3.$minor of Debian $release: build the image on that release" >&2
    exit 1
fi
version=$("$python" -c 'import nodeagent; print(nodeagent.__version__)')
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$build/wheel" .

# Debian's packages and what they need, only unpacked. No shell and no package manager stays.
system() { # ARCHITECTURE ROOT
    local root=$2 package
    mmdebstrap --quiet --variant=extract --architectures="$1" --skip=cleanup/apt/cache --format=directory \
        --include=python3-minimal,libpython3-stdlib,nftables,netbase,ca-certificates $release "$root"
    install -d "$root/usr/share/nodeagent"
    for package in "$root"/var/cache/apt/archives/*.deb; do
        # shellcheck disable=SC2016  # dpkg-deb fills these in
        dpkg-deb --show --showformat='${Package} ${Version} ${Architecture}\n' "$package"
    done | sort >"$root/usr/share/nodeagent/debian-packages"
    install -d "$root/etc/ssl/certs"
    cat "$root"/usr/share/ca-certificates/mozilla/*.crt >"$root/etc/ssl/certs/ca-certificates.crt"
    # Where OpenSSL looks: the directory of certs has no names by hash, which update-ca-certificates would make.
    ln -sf /etc/ssl/certs/ca-certificates.crt "$root/usr/lib/ssl/cert.pem"
    # What it took from this machine; the container's runtime mounts the real ones over them.
    : >"$root/etc/hostname"
    : >"$root/etc/resolv.conf"
    find "$root/dev" -mindepth 1 -delete
    mkdir -p "$root/proc" "$root/sys" "$root/keep"
    mv "$root"/usr/bin/python3* "$root/usr/sbin/nft" "$root/keep"
    find "$root/usr/share/doc" \( -type f -o -type l \) ! -name copyright -delete
    (cd "${root:?}" && rm -rf bin sbin usr/bin usr/sbin usr/games usr/libexec var/cache var/log var/lib/apt var/lib/dpkg etc/apt etc/dpkg etc/cron* \
        usr/share/[!dnpz]* usr/share/d[!o]* usr/share/doc-base usr/share/p[!y]* usr/lib/apt usr/lib/dpkg usr/lib/*/gconv usr/lib/*/perl* \
        usr/lib/python3.$minor/{pydoc_data,lib2to3,idlelib,ensurepip,distutils,turtledemo})
    mkdir -p "$root"/usr/bin "$root"/usr/sbin
    mv "$root"/keep/python3* "$root/usr/bin"
    mv "$root/keep/nft" "$root/usr/sbin"
    rmdir "$root/keep"
}

image() { # ARCHITECTURE
    local root=$build/root-$1 home
    system "$1" "$root"
    home=$root/usr/lib/nodeagent
    install -d "$home" "$root/etc/nodeagent" "$root/run/nodeagent" "$root/var/lib/nodeagent"
    cp -R "$(systemd/packaging/libraries.sh $minor "$1")/." "$home"
    # A wheel is a zip file; pip would also write down where it found it.
    "$python" -m zipfile --extract "$build"/wheel/nodeagent-*.whl "$home"
    "$python" systemd/packaging/licences.py "$home" usr/lib/nodeagent >"$root/usr/share/nodeagent/licences"
    install -m 755 systemd/packaging/nodeagent.launcher "$root/usr/bin/nodeagent"
    printf 'root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/:/\n' >"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
    # Nobody changes these files, and the root of the container is read-only: no time stamps are compared.
    $system_python -m compileall -q --invalidation-mode unchecked-hash -s "$root" "$home" "$root/usr/lib/python3.$minor" >"$build/compiled" ||
        { cat "$build/compiled" >&2; exit 1; }
    "$python" systemd/packaging/sbom.py --debian "$root/usr/share/nodeagent/debian-packages" >"$root/usr/share/nodeagent/nodeagent.cdx.json"
    tar --create --directory "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --clamp-mtime --owner=0 --group=0 --numeric-owner \
        --format=gnu --file "$build/$1.tar" .
    rm -rf "$root"
}

layers=()
for architecture in $architectures; do
    case $architecture in
        amd64 | arm64) image "$architecture" ;;
        *) echo "deploy/image/build.sh: no libraries are known for '$architecture': name amd64 or arm64" >&2; exit 1 ;;
    esac
    layers+=("$architecture=$build/$architecture.tar")
done
mkdir -p "$output"
"$python" deploy/image/oci.py "$output" "$version" "$SOURCE_DATE_EPOCH" "${layers[@]}"

#!/usr/bin/env bash
# Builds a Debian package of this tree:
#
#     systemd/packaging/build_deb.sh [DIRECTORY [REVISION [RELEASE [ARCHITECTURE]]]]
#
# RELEASE is one of those below (default: this machine's), ARCHITECTURE amd64 or arm64 (default: this machine's). The package holds its Python
# libraries below /usr/lib/nodeagent, where nothing else looks, as their wheels have them. Wheels are for one minor version of Python, so
# there is a package for each, and it depends on that version. Nothing that it holds is run, so any machine builds all of them.
# The same tree gives the same bytes. MAINTAINER="NAME <ADDRESS>" is who answers for the package.
set -euo pipefail
cd "$(dirname "$0")/../.."
output=${1:-dist}
revision=${2:-1}
# shellcheck source=/dev/null
release=${3:-$(. /etc/os-release; echo "${ID/debian/deb}$VERSION_ID")}
architecture=${4:-$(dpkg --print-architecture)}
maintainer=${MAINTAINER:-The nodeagent authors <nodeagent@localhost>}
python=${PYTHON:-.venv/bin/python}
export PYTHON=$python

case $release in
    deb12) minor=11 ;;
    ubuntu24.04) minor=12 ;;
    deb13) minor=13 ;;
    ubuntu26.04) minor=14 ;;
    *) echo "build_deb.sh: nobody said which Python '$release' has: name deb12, deb13, ubuntu24.04 or ubuntu26.04" >&2; exit 1 ;;
esac
case $architecture in
    amd64) strip=x86_64-linux-gnu-strip ;;
    arm64) strip=aarch64-linux-gnu-strip ;;
    *) echo "build_deb.sh: no libraries are known for '$architecture': name amd64 or arm64" >&2; exit 1 ;;
esac
command -v $strip >/dev/null || { echo "build_deb.sh: there is no $strip: install binutils, or binutils-aarch64-linux-gnu for arm64" >&2; exit 1; }

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
umask 022

version=$("$python" -c 'import nodeagent; print(nodeagent.__version__)')-$revision~$release
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$build/wheel" .

root=$build/root
home=$root/usr/lib/nodeagent
install -d "$home"
cp -R "$(systemd/packaging/libraries.sh $minor "$architecture")/." "$home"
# A wheel is a zip file; pip would also write down where it found it.
"$python" -m zipfile --extract "$build"/wheel/nodeagent-*.whl "$home"
# Symbols for debuggers of C are two thirds of some libraries. The hashes that a wheel lists of its files are then no longer true.
find "$home" -name '*.so' -exec $strip --strip-unneeded --remove-section=.comment {} +
rm "$home"/*.dist-info/RECORD
# Modules that some library has as a program name an interpreter that Debian does not have; nobody runs them as programs.
grep -lrZ --include='*.py' '^#!.*python$' "$home" | xargs -0 -r sed -i '1{/^#!/d}'
find "$home" -type f -exec chmod 644 {} +
glibc=$(find "$home" -name '*.so' -exec "${strip%strip}objdump" -T {} + | grep -o 'GLIBC_2[0-9.]*' | sort -Vu | tail -n 1)

install -d "$root/usr/bin" "$root/etc/nodeagent/services"
install -m 755 systemd/packaging/nodeagent.launcher "$root/usr/bin/nodeagent"
plug_in() { # PROGRAM FUNCTION: what kubectl looks for
    sed -e "s/^from nodeagent.* import main$/from nodeagent.cli.kubectl_plugin import $2/" -e "s/^main(.*)$/$2()/" \
        systemd/packaging/nodeagent.launcher >"$root/usr/bin/$1"
    chmod 755 "$root/usr/bin/$1"
}
plug_in kubectl-nodeagent main
plug_in kubectl_complete-nodeagent complete
install -D -m 644 -t "$root/usr/lib/systemd/system" systemd/nodeagent.service systemd/nodeagent-apiserver.service
install -D -m 644 systemd/nodeagent.sysusers "$root/usr/lib/sysusers.d/nodeagent.conf"
install -D -m 644 systemd/nodeagent.tmpfiles "$root/usr/lib/tmpfiles.d/nodeagent.conf"
install -m 644 systemd/nodeagent.yaml "$root/etc/nodeagent/nodeagent.yaml"
install -D -m 644 systemd/nodeagent-apiserver.default "$root/etc/default/nodeagent-apiserver"

"$python" systemd/packaging/man_pages.py "$root/usr/share/man/man8"
gzip -9 -n "$root"/usr/share/man/man8/*
ln -s nodeagent.8.gz "$root/usr/share/man/man8/kubectl-nodeagent.8.gz"
ln -s nodeagent.8.gz "$root/usr/share/man/man8/kubectl_complete-nodeagent.8.gz"
complete() { # SHELL FILE
    install -d "$(dirname "$root/$2")"
    _NODEAGENT_COMPLETE="$1_source" "$(dirname "$python")/nodeagent" >"$root/$2"
}
complete bash usr/share/bash-completion/completions/nodeagent
complete zsh usr/share/zsh/vendor-completions/_nodeagent
complete fish usr/share/fish/vendor_completions.d/nodeagent.fish

documents=$root/usr/share/doc/nodeagent
"$python" systemd/packaging/documents.py "$documents"
"$python" systemd/packaging/licences.py "$home" usr/lib/nodeagent >"$documents/copyright"
gzip -9 -n <CHANGELOG.md >"$documents/changelog.gz"
gzip -9 -n >"$documents/changelog.Debian.gz" <<CHANGES
nodeagent ($version) unstable; urgency=medium

  * What changes for users is in changelog.gz.

 -- $maintainer  $(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
CHANGES
"$python" systemd/packaging/sbom.py >"$documents/nodeagent.cdx.json"
install -D -m 644 systemd/packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/nodeagent"

control=$root/DEBIAN
install -d "$control"
install -m 755 -t "$control" systemd/packaging/debian/postinst systemd/packaging/debian/prerm systemd/packaging/debian/postrm
(cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$control/conffiles"
(cd "$root" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@MAINTAINER@/$maintainer/" \
    -e "s/@MINOR@/$minor/g" -e "s/@NEXT_MINOR@/$((minor + 1))/" -e "s/@GLIBC@/${glibc#GLIBC_}/" \
    -e "s/@SIZE@/$(du -sk --apparent-size --exclude=DEBIAN "$root" | cut -f1)/" \
    systemd/packaging/debian/control.in >"$control/control"

# dpkg-deb makes what is newer as old as the commit is; what is older would keep a time of its own.
find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
package=nodeagent_${version}_$architecture.deb
mkdir -p "$output"
dpkg-deb --root-owner-group -Zxz -z3 --threads-max=1 --build "$root" "$build/$package" >/dev/null
mv "$build/$package" "$output/$package"
echo "$output/$package"

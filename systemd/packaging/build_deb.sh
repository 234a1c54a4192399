#!/usr/bin/env bash
# Builds a Debian package of this tree for this machine's release: systemd/packaging/build_deb.sh [DIRECTORY [REVISION]]
#
# The package holds its Python libraries below /usr/lib/nodeagent, where nothing else looks, as pip installs them from
# their wheels. They are for the minor version of /usr/bin/python3 they were installed with, so the package depends on it.
set -euo pipefail
cd "$(dirname "$0")/../.."
output=${1:-dist}
revision=${2:-1}
python=${PYTHON:-.venv/bin/python}

export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
umask 022

version=$("$python" -c 'import nodeagent; print(nodeagent.__version__)')
minor=$("$python" -c 'import sys; print(sys.version_info.minor)')
system_minor=$(/usr/bin/python3 -c 'import sys; print(sys.version_info.minor)')
if [ "$minor" != "$system_minor" ]; then
    echo "$python is Python 3.$minor, but /usr/bin/python3, which will run the package, is 3.$system_minor" >&2
    exit 1
fi

# Libraries come from the network, so they are kept until other releases are locked.
libraries=build/libraries-3.$minor-$(sha256sum requirements/runtime.txt | cut -c1-16)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
"$python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$build/wheel" .
if [ ! -d "$libraries" ]; then
    mkdir -p build
    "$python" -m pip install --quiet --no-compile --no-deps --require-hashes --target "$build/libraries" \
        --requirement requirements/runtime.txt
    rm -rf "$build/libraries/bin"
    mv "$build/libraries" "$libraries"
fi

root=$build/root
home=$root/usr/lib/nodeagent
install -d "$home"
cp -a "$libraries/." "$home"
"$python" -m pip install --quiet --no-compile --no-deps --no-index --target "$build/own" "$build"/wheel/nodeagent-*.whl
cp -a "$build"/own/nodeagent "$build"/own/nodeagent-*.dist-info "$home"
# The service cannot write below /usr, and nobody changes these files: no time stamps are compared.
/usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash -s "$root" "$home"

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
complete() { # SHELL FILE
    install -d "$(dirname "$root/$2")"
    _NODEAGENT_COMPLETE="$1_source" "$(dirname "$python")/nodeagent" >"$root/$2"
}
complete bash usr/share/bash-completion/completions/nodeagent
complete zsh usr/share/zsh/vendor-completions/_nodeagent
complete fish usr/share/fish/vendor_completions.d/nodeagent.fish

documents=$root/usr/share/doc/nodeagent
"$python" systemd/packaging/documents.py "$documents"
install -m 644 systemd/packaging/debian/copyright "$documents/copyright"
gzip -9 -n <CHANGELOG.md >"$documents/changelog.gz"
"$python" systemd/packaging/sbom.py >"$documents/nodeagent.cdx.json"

control=$root/DEBIAN
install -d "$control"
install -m 755 -t "$control" systemd/packaging/debian/postinst systemd/packaging/debian/prerm systemd/packaging/debian/postrm
(cd "$root" && find etc -type f -printf '/%p\n' | sort) >"$control/conffiles"
(cd "$root" && find usr etc -type f -print0 | sort -z | xargs -0 md5sum) >"$control/md5sums"
sed -e "s/@VERSION@/$version-$revision/" \
    -e "s/@ARCHITECTURE@/$(dpkg --print-architecture)/" \
    -e "s/@MINOR@/$minor/g" -e "s/@NEXT_MINOR@/$((minor + 1))/" \
    -e "s/@SIZE@/$(du -sk --exclude=DEBIAN "$root" | cut -f1)/" \
    systemd/packaging/debian/control.in >"$control/control"

package=nodeagent_$version-${revision}_$(dpkg --print-architecture).deb
mkdir -p "$output"
dpkg-deb --root-owner-group -Zxz -z3 --build "$root" "$build/$package" >/dev/null
mv "$build/$package" "$output/$package"
echo "$output/$package"

#!/usr/bin/env bash
# Makes everything that a release has: deploy/release/release.sh VERSION [DIRECTORY]
#
# The tree must be the one that the tag vVERSION names, with nothing changed or added. All files but the signature are made of the
# tag, the locked libraries and Debian's packages alone: another run gives the same bytes.
#
# KEY names the GnuPG key that signs SHA256SUMS. Needs root and what `make deb image site` need; PARTS leaves some of it out.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:?VERSION of the release}
output=$(realpath -m "${2:-dist/$version}")
parts=${PARTS:-python debs image site}
export PYTHON=${PYTHON:-.venv/bin/python}
fail() { echo "release: $*" >&2; exit 1; }

notes=$("$PYTHON" deploy/release/notes.py "$version" <CHANGELOG.md)
written=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' nodeagent/__init__.py)
[ "$written" = "$version" ] || fail "nodeagent/__init__.py says that this is version $written"
changed=$(git status --porcelain | wc -l)
[ "$changed" = 0 ] || fail "$changed files of the tree are not as they were committed; see 'git status'"
tagged=$(git rev-parse --quiet --verify "refs/tags/v$version^{commit}") || fail "there is no tag v$version"
[ "$tagged" = "$(git rev-parse HEAD)" ] || fail "the tag v$version is not this commit but $tagged"
if [ -n "${KEY:-}" ]; then
    gpg --batch --list-secret-keys "$KEY" >/dev/null 2>&1 || fail "GnuPG has no secret key '$KEY'"
fi

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$tagged")
MAINTAINER=${MAINTAINER:-$(git for-each-ref --format='%(taggername) %(taggeremail)' "refs/tags/v$version")}
[ "$MAINTAINER" != " " ] || MAINTAINER=$(git log -1 --format='%cn <%ce>' "$tagged")
export SOURCE_DATE_EPOCH MAINTAINER PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
umask 022
wanted() { [[ " $parts " == *" $1 "* ]]; }
# The archive of a directory, or of some files in it, the same whenever and by whomever it is made.
archive() { # FILE DIRECTORY NAME…
    tar --create --directory "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --format=gnu "${@:3}" | gzip -9 -n >"$1"
}

rm -rf "$output"
mkdir -p "$output"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "$notes" >"$output/RELEASE_NOTES.md"
"$PYTHON" systemd/packaging/sbom.py >"$output/nodeagent-$version.cdx.json"
cp -R deploy/helm "$work/nodeagent"
archive "$output/nodeagent-chart-$version.tgz" "$work" nodeagent

if wanted python; then
    "$PYTHON" -m hatchling build --directory "$output" >/dev/null 2>&1
fi
if wanted debs; then
    for release in deb12 deb13 ubuntu24.04 ubuntu26.04; do
        for architecture in amd64 arm64; do
            systemd/packaging/build_deb.sh "$output" 1 $release $architecture
        done
    done
fi
if wanted image; then
    deploy/image/build.sh "$output"
    for architecture in amd64 arm64; do
        "$PYTHON" deploy/release/image_sbom.py "$output/nodeagent-$version-$architecture.tar" \
            >"$output/nodeagent-$version-image-$architecture.cdx.json"
    done
fi
if wanted site; then
    docs/site/build.sh "$work/site"
    archive "$output/nodeagent-site-$version.tar.gz" "$work/site" .
fi

"$PYTHON" deploy/release/provenance.py "$output" "$version" "$tagged" >"$work/provenance"
mv "$work/provenance" "$output/nodeagent-$version.provenance.json"
(cd "$output" && find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
if [ -n "${KEY:-}" ]; then
    gpg --batch --yes --local-user "$KEY" --armor --detach-sign "$output/SHA256SUMS"
    echo "release: $output, signed by $KEY"
else
    echo "release: $output, not signed: KEY=… names the GnuPG key that is to sign SHA256SUMS"
fi

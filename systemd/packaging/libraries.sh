#!/usr/bin/env bash
# Puts the locked libraries for one Python and one architecture into a directory, and prints its name:
#
#     systemd/packaging/libraries.sh MINOR ARCHITECTURE        (11 amd64)
#
# They are wheels, only unpacked, so that any machine can do it for any other. They come from the network, so they are kept until other
# releases are locked. PYTHON names the interpreter whose pip is used.
set -euo pipefail
cd "$(dirname "$0")/../.."
minor=$1
case $2 in
    amd64) machine=x86_64 ;;
    arm64) machine=aarch64 ;;
    *) echo "libraries.sh: no libraries are known for '$2': name amd64 or arm64" >&2; exit 1 ;;
esac

directory=build/libraries-3.$minor-$2-$(sha256sum requirements/runtime.txt | cut -c1-16)
if [ ! -d "$directory" ]; then
    mkdir -p build
    new=$(mktemp -d build/libraries.XXXXXX)
    trap 'rm -rf "$new"' EXIT
    chmod 755 "$new"
    platforms=(--platform "manylinux2014_$machine")
    for glibc in $(seq 36 -1 5); do platforms+=(--platform "manylinux_2_${glibc}_$machine"); done
    "${PYTHON:-.venv/bin/python}" -m pip --quiet --disable-pip-version-check install --no-compile --no-deps --require-hashes \
        --only-binary :all: --implementation cp --python-version "3.$minor" "${platforms[@]}" \
        --target "$new" --requirement requirements/runtime.txt
    rm -rf "${new:?}/bin"
    mv "$new" "$directory"
    trap - EXIT
fi
echo "$directory"

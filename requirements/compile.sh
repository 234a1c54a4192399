#!/usr/bin/env bash
# Writes the lock files anew from pyproject.toml, with the newest releases that it admits: `make lock`.
#
# runtime.txt is what the agent runs with, development.txt adds the tools of `make test`, build.txt is what installs the
# package from this tree. Each has the hashes of all files of
# a release, so that it holds on every architecture. Needs a package index; takes minutes, because each file is hashed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

/usr/bin/python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet 'pip>=25.1' 'pip-tools>=7.5,<8'
/usr/bin/python3 - pyproject.toml >"$work/development.in" <<'PYTHON'
import sys, tomllib
with open(sys.argv[1], "rb") as file:
    print(*tomllib.load(file)["dependency-groups"]["dev"], sep="\n")
PYTHON

compile() { # FILE SOURCE…
    "$work/venv/bin/pip-compile" --quiet --generate-hashes --strip-extras --allow-unsafe --no-annotate --no-header \
        --no-emit-index-url --no-emit-find-links --no-emit-options --output-file "$work/$1" "${@:2}"
    { echo "# Written by requirements/compile.sh; changes made here are lost."; cat "$work/$1"; } >"requirements/$1"
}
compile runtime.txt pyproject.toml
compile development.txt --constraint requirements/runtime.txt pyproject.toml "$work/development.in"
printf '%s\n' hatchling editables >"$work/build.in"
compile build.txt --constraint requirements/development.txt "$work/build.in"

#!/usr/bin/env bash
# Makes the documentation site: docs/site/build.sh [DIRECTORY]
#
# The site of this version is DIRECTORY/VERSION, and DIRECTORY/index.html leads to every version that is there. It needs no server and no
# network: it can be read from a directory, and searched. A warning of Sphinx is an error. The same tree gives the same bytes.
set -euo pipefail
cd "$(dirname "$0")/../.."
output=${1:-dist/site}
python=${PYTHON:-.venv/bin/python}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export PYTHONHASHSEED=0

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
"$python" docs/site/stage.py "$build"
cp docs/site/conf.py "$build/source"
cp -R docs/site "$build/source/site"
version=$("$python" -c 'import nodeagent; print(nodeagent.__version__)')
mkdir -p "$output"
rm -rf "${output:?}/$version"
"$python" -m sphinx --quiet --fail-on-warning --keep-going --nitpicky -b html -d "$build/doctrees" "$build/source" "$output/$version"
rm -rf "$output/$version/.buildinfo" "$output/$version/objects.inv"
{
    echo '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    echo '<meta name="color-scheme" content="light dark"><title>nodeagent: documentation</title>'
    echo '<body style="font-family: sans-serif; margin: 3rem auto; max-width: 40rem; padding: 0 1rem"><h1>nodeagent</h1><ul>'
    find "$output" -mindepth 2 -maxdepth 2 -name index.html -printf '%P\n' | sort --version-sort --reverse |
        sed -E 's|^(.*)/index.html$|<li><a href="\1/index.html">\1</a></li>|'
    echo '</ul></body></html>'
} >"$build/index.html"
cp "$build/index.html" "$output/index.html"

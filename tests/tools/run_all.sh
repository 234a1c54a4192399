#!/usr/bin/env bash
# Runs every test but those of tests/boot: the ones with packets, which mostly wait, and beside them the others, whose
# output is printed afterwards. What is given is passed on to both runs of pytest.
#
#     tests/tools/run_all.sh [PYTEST OPTION...]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

printed=$(mktemp)
.venv/bin/pytest -m "not kernel" "$@" >"$printed" 2>&1 &
plain=$!
trap 'rm -f "$printed"' EXIT
trap 'kill -INT "$plain"; wait "$plain"; exit 130' INT TERM

.venv/bin/pytest -m kernel "$@"
with_packets=$?
wait "$plain"
without=$?
cat "$printed"
exit $((with_packets > without ? with_packets : without))

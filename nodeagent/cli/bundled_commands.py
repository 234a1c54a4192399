"""Outputs of programs on a node, for a bundle: rules, routes, links, `nodeagent check`, the log."""

import subprocess
import sys
from collections.abc import Iterator

SECONDS = 60.0
LOG_LINES = 5000
LARGEST_BYTES = 16 << 20
"""Limit of one program's output; a longer one is cut, with a note."""
COMMANDS = {
    "ruleset": ("nft", "-n", "list", "ruleset"),
    "links": ("ip", "-d", "-s", "link"),
    "addresses": ("ip", "address"),
    "routes": ("ip", "route", "show", "table", "all"),
    "routes6": ("ip", "-6", "route", "show", "table", "all"),
    "routing-rules": ("ip", "rule"),
    "routing-rules6": ("ip", "-6", "rule"),
    "check": (sys.executable, "-m", "nodeagent", "check"),
    "log": ("journalctl", "--unit", "nodeagent", "--lines", str(LOG_LINES), "--no-pager", "--output", "short-iso"),
}


def command_outputs() -> Iterator[tuple[str, bytes]]:
    """Yields (file name, output) for each command; `NAME.error.txt` if the program cannot be run."""
    for name, command in COMMANDS.items():
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            yield f"{name}.error.txt", str(error).encode()
        else:
            text = done.stdout or done.stderr
            cut = b"\n... cut off here\n" if len(text) > LARGEST_BYTES else b""
            yield f"{name}.txt", text[:LARGEST_BYTES] + cut

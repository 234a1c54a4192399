"""Prints what a release changes, out of the changelog: notes.py VERSION <CHANGELOG.md

Exits with 1 and one line for a version that has no section, or whose section still says that it is not released.
"""

import re
import sys


def notes(changelog: str, version: str) -> str:
    """Returns the text below the heading of `version`, up to the next version.

    Raises ValueError for no such heading, one without a date (`## 1.2.3, 2026-01-31`), or nothing below it.
    """
    found = re.search(rf"^## {re.escape(version)}, *(.*)\n((?:(?!## ).*\n?)*)", changelog, re.MULTILINE)
    if found is None:
        raise ValueError(f"CHANGELOG.md has no section '## {version}, DATE'")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", found[1]):
        raise ValueError(f"CHANGELOG.md says of {version} '{found[1]}': write the date of the release there")
    if not found[2].strip():
        raise ValueError(f"CHANGELOG.md says nothing of {version}")
    return found[2].strip() + "\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(notes(sys.stdin.read(), sys.argv[1]))
    except ValueError as error:
        sys.exit(f"release: {error}")

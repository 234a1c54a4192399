"""Prints how a release was made, as an in-toto statement with SLSA provenance: provenance.py DIRECTORY VERSION COMMIT

The forms are those of in-toto.io/Statement/v1 and slsa.dev/provenance/v1. It names no machine and no time: who builds the tag
again gets the same bytes, and whose they are is said by the signature of SHA256SUMS, which covers them.
"""

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LOCKS = ("runtime.txt", "build.txt", "development.txt")
MADE_BY = "https://nodeagent.dev/release/v1"
"""What `externalParameters` means: `make release VERSION=…` in the tree of that tag. docs/install.md explains it."""


def statement(directory: Path, version: str, commit: str) -> dict[str, Any]:
    """The statement about every file of the directory.

    Parameters:
      commit: of the tag, as 40 hexadecimal digits.
    """
    source = {"name": "source", "digest": {"gitCommit": commit}, "annotations": {"git": {"tag": f"v{version}"}}}
    locks = [
        {"name": f"requirements/{name}", "digest": {"sha256": sha256(ROOT / "requirements" / name)}} for name in LOCKS
    ]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in sorted(directory.iterdir())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": MADE_BY,
                "externalParameters": {"command": f"make release VERSION={version}", "tag": f"v{version}"},
                "resolvedDependencies": [source, *locks, *libraries()],
            },
            "runDetails": {"builder": {"id": f"{MADE_BY}/maintainer"}},
        },
    }


def libraries() -> list[dict[str, Any]]:
    """Every locked library, with the hashes of the files that may have been taken."""
    text = "".join((ROOT / "requirements" / name).read_text() for name in LOCKS)
    locked = re.findall(r"^([\w.-]+)==([^\s\\]+)((?: \\\n +--hash=sha256:\w+)*)", text, re.MULTILINE)
    files = {f"pkg:pypi/{name}@{version}": re.findall(r"sha256:(\w+)", hashes) for name, version, hashes in locked}
    return [{"uri": uri, "annotations": {"files": {"sha256": files[uri]}}} for uri in sorted(files)]


def sha256(path: Path) -> str:
    """In hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(statement(Path(sys.argv[1]), sys.argv[2], sys.argv[3]), indent=1) + "\n")

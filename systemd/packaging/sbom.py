"""Prints what a package of nodeagent is made of, as CycloneDX 1.6 JSON (cyclonedx.org/docs/1.6/json).

python systemd/packaging/sbom.py [--debian FILE] >nodeagent.cdx.json

FILE has a line "name version architecture" for each Debian package beside it, as in the container image.

The libraries are those locked in requirements/runtime.txt; licences and who needs whom are read from the environment they
are installed in, which must hold the locked releases. The same tree gives the same document.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nodeagent import __version__

LOCK = Path(__file__).parents[2] / "requirements" / "runtime.txt"
NAME = "nodeagent"


def main() -> None:
    """To standard output. Ends with 1 when another release than the locked one is installed."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--debian", type=Path)
    packages = arguments.parse_args().debian
    locked = dict(locked_releases(LOCK.read_text()))
    for name, version in locked.items():
        if (installed := distribution(name).version) != version:
            sys.exit(f"{name} {installed} is installed, {LOCK} has {version}: run `make setup`")
    contents = document(locked)
    if packages is not None:
        contents["components"] += [debian_component(*line.split()) for line in packages.read_text().splitlines()]
    sys.stdout.write(json.dumps(contents, indent=2) + "\n")


def locked_releases(lock: str) -> Iterator[tuple[str, str]]:
    """Name and version of each release in the text of a lock file."""
    for found in re.finditer(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE):
        yield found[1], found[2]


def document(locked: dict[str, str]) -> dict[str, Any]:
    """The document of these releases."""
    own = {"type": "application", "bom-ref": NAME, "name": NAME, "version": __version__}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**own, "licenses": [{"expression": "Apache-2.0"}]}},
        "components": [component(name, version) for name, version in sorted(locked.items())],
        "dependencies": [
            {"ref": ref(name, locked), "dependsOn": sorted(ref(needed, locked) for needed in needs(name, locked))}
            for name in (NAME, *sorted(locked))
        ],
    }


def ref(name: str, locked: dict[str, str]) -> str:
    """The name of a component within the document: its package URL."""
    return NAME if name == NAME else f"pkg:pypi/{name}@{locked[name]}"


def component(name: str, version: str) -> dict[str, Any]:
    """A library."""
    purl = f"pkg:pypi/{name}@{version}"
    license_ = licence_of(distribution(name))
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        **({"licenses": [license_]} if license_ else {}),
    }


def debian_component(name: str, version: str, architecture: str) -> dict[str, Any]:
    """A package of Debian; its licences are in /usr/share/doc of the image."""
    purl = f"pkg:deb/debian/{name}@{quote(version, safe='.+-~')}?arch={architecture}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def licence_of(installed: Distribution) -> dict[str, Any] | None:
    """What a library says of its licence: an SPDX expression, else a name in its own words; None for nothing."""
    metadata = installed.metadata.json
    if expression := metadata.get("license_expression"):
        return {"expression": expression}
    named = [line.rpartition(" :: ")[2] for line in metadata.get("classifier", ()) if line.startswith("License ::")]
    name = ", ".join(named) or str(metadata.get("license", "")).strip().partition("\n")[0]
    return {"license": {"name": name}} if name else None


def needs(name: str, locked: dict[str, str]) -> set[str]:
    """Which locked libraries one asks for; those for other platforms and for extras are not locked or not counted."""
    asked = (line.partition(";") for line in distribution(name).requires or ())
    names = {re.split(r"[^\w.-]", wanted, maxsplit=1)[0] for wanted, _, marker in asked if "extra ==" not in marker}
    return {known for known in (re.sub(r"[-_.]+", "-", one).lower() for one in names) if known in locked}


if __name__ == "__main__":
    main()

"""Prints under which licences the files of a package are: licences.py DIRECTORY TREE, as Debian's copyright files have it.

DIRECTORY holds the libraries as their wheels have them, TREE is how users call it. Each library's own licence texts follow whole: what
most licences ask of those who pass a library on. A library without any is refused.
"""

import email.message
import email.parser
import re
import sys
from collections.abc import Iterator
from pathlib import Path

FORMAT = "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
APACHE = "/usr/share/common-licenses/Apache-2.0"
TEXTS = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|AUTHORS)", re.IGNORECASE)
COPYRIGHT = re.compile(r"^\W*(copyright\b.*\d{4}.*|copyright .*(?:contributors|authors).*)$", re.IGNORECASE)


def main(directory: str, tree: str) -> None:
    """To standard output."""
    libraries = sorted(path for path in Path(directory).glob("*.dist-info") if not path.name.startswith("nodeagent-"))
    stanzas = [line for library in libraries for line in ("", *stanza(library, tree))]
    sys.stdout.write("\n".join([*head(), *stanzas]) + "\n")


def head() -> Iterator[str]:
    """What is ours."""
    yield f"Format: {FORMAT}"
    yield "Upstream-Name: nodeagent"
    yield ""
    yield "Files: *"
    yield "Copyright: 2026 The nodeagent authors"
    yield "License: Apache-2.0"
    yield " On Debian systems, the complete text of the Apache License, version 2.0, is in"
    yield f" {APACHE}."


def stanza(library: Path, tree: str) -> Iterator[str]:
    """One library: its files, who holds the copyright, its licence as it names it, and its texts."""
    metadata = email.parser.Parser().parsestr((library / "METADATA").read_text())
    texts = sorted(path for path in library.rglob("*") if path.is_file() and TEXTS.match(path.name))
    if not texts:
        sys.exit(f"licences.py: {library.name} has no licence text")
    name = f"{metadata['Name']} {metadata['Version']}"
    lines = [line for path in texts for line in path.read_text().splitlines()]
    holders = dict.fromkeys(found[1].strip() for line in lines if (found := COPYRIGHT.match(line)))
    yield f"Files: {tree}/{library.name.split('-')[0]}*"
    yield f"Comment: {name}, from its wheel on PyPI"
    yield "Copyright: " + "\n ".join(holders or {f"The authors of {metadata['Name']}": None})
    yield f"License: {name_of_licence(metadata)}"
    for path in texts:
        text = path.read_text()
        if re.search(r"Apache License\s+Version 2.0, January 2004", text):
            text = f"The Apache License, version 2.0: {APACHE},\nand {tree}/{path.relative_to(library.parent)}"
        yield f" {path.relative_to(library)}:"
        yield " ."
        yield from (f" {line.rstrip()}" if line.strip() else " ." for line in text.splitlines())


def name_of_licence(metadata: email.message.Message) -> str:
    """In the library's own words, on one line."""
    classes = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", ()) if line.startswith("License")]
    said = metadata["License-Expression"] or metadata["License"] or ", ".join(classes) or "see its text"
    return str(said).strip().partition("\n")[0]


if __name__ == "__main__":
    main(*sys.argv[1:])

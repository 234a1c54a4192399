"""Lays the documents out for Sphinx: stage.py DIRECTORY.

docs/README.md is the map: each of its sections becomes a part of the navigation, in its order. What it does not name comes last.
"""

import os
import re
import sys
from os.path import normpath
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "systemd" / "packaging"))

from documents import LINK, copy_documents  # noqa: E402 - a script of another directory

MAP = Path("docs/README.md")
TOP = Path("README.md")
REST = "More"


def place_of(file: Path) -> Path:
    """Where a file of the tree is on the site: what is below docs/ at the top, papers of the project below project/."""
    if file in (MAP, TOP):
        return Path("index.md")
    return file.relative_to("docs") if file.parts[0] == "docs" else Path("project", file.name)


def stage(target: Path) -> None:
    """Writes every document, with links between the new places, and the navigation into the first."""
    tree = target / "tree"
    copy_documents(tree)
    files = sorted(path.relative_to(tree) for path in tree.rglob("*") if path.is_file() and path != tree / TOP)
    for file in files:
        new = target / "source" / place_of(file)
        new.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            new.write_bytes((tree / file).read_bytes())
            continue
        text = moved((tree / file).read_text(), file, tree)
        if file == MAP:
            text += navigation(text, {str(place_of(one)) for one in files if one.suffix == ".md"})
        elif file.name == "README.md" and (below := sorted((tree / file).parent.glob("[0-9]*.md"))):
            text += toctree("", [path.name for path in below])
        new.write_text(text)


def moved(text: str, file: Path, tree: Path) -> str:
    """The text with its links as they are between the new places. A directory has no page, but for its README."""

    def link(found: re.Match[str]) -> str:
        picture, words, place, anchor = found.groups()
        if "://" in place or not place:
            return found[0]
        old = Path(normpath(file.parent / place))
        if (tree / old).is_dir():
            old = old / "README.md"
        if not (tree / old).is_file():
            return words
        there = place_of(old)
        if words.endswith(".md"):
            # Without words of its own a link has the title of where it leads.
            words = ""
        return f"{picture}[{words}]({os.path.relpath(there, place_of(file).parent)}{anchor or ''})"

    return LINK.sub(link, text)


def navigation(text: str, known: set[str]) -> str:
    """Tables of contents, one for each section of the map; documents that it does not name follow."""
    parts: dict[str, list[str]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        parts[section.partition("\n")[0]] = re.findall(r"^- \[[^\]]*\]\(([^)]+\.md)\)", section, re.MULTILINE)
    named = {page for pages in parts.values() for page in pages}
    rest = sorted(page for page in known - named - {"index.md"} if not page.startswith("decisions/"))
    return "".join(toctree(title, pages) for title, pages in (*parts.items(), (REST, rest)) if pages)


def toctree(caption: str, pages: list[str]) -> str:
    """One table of contents, as MyST spells it."""
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return f"\n```{{toctree}}\n{options}\n" + "".join(f"{page}\n" for page in pages) + "```\n"


if __name__ == "__main__":
    stage(Path(sys.argv[1]))

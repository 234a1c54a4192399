"""Copies the documents into a package: documents.py DIRECTORY. Links to what the package has not are left as plain text."""

import re
import shutil
import sys
from os.path import normpath
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAPERS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "GOVERNANCE.md", "CODE_OF_CONDUCT.md", "docs")
SITE = ROOT / "docs" / "site"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]*)(#[^()\s]*)?\)")


def copy_documents(target: Path) -> None:
    """Copies the papers and all below docs/ but what makes the site, at the places that they have in the tree."""
    found = (path for paper in PAPERS for path in ((ROOT / paper), *(ROOT / paper).rglob("*")))
    files = {path.relative_to(ROOT) for path in found if path.is_file() and SITE not in path.parents}
    kept = files | {parent for file in files for parent in file.parents}
    for file in sorted(files):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            (target / file).write_text(without_dead_links((ROOT / file).read_text(), file, kept))
        else:
            shutil.copyfile(ROOT / file, target / file)


def without_dead_links(text: str, file: Path, kept: set[Path]) -> str:
    """Returns the text of `file` with the words alone of links that lead to none of the `kept` files and directories."""

    def link(found: re.Match[str]) -> str:
        picture, words, place, _ = found.groups()
        leads = "://" in place or not place or Path(normpath(file.parent / place)) in kept
        return found[0] if leads or picture else words

    return LINK.sub(link, text)


if __name__ == "__main__":
    copy_documents(Path(sys.argv[1]))

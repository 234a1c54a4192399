"""`make site`: every link and anchor leads somewhere, nothing is asked of the network, and it can be searched and used from a directory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from nodeagent import __version__

ROOT = Path(__file__).parents[2]
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
"""Attributes that a browser follows by itself."""


class Page(HTMLParser):
    """What a page refers to, and the places in it that others can refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)
                if (tag, name) in LOADED:
                    self.loads.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with warnings as errors."""
    place = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [ROOT / "docs" / "site" / "build.sh", place],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    found = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    assert len(found) > 70
    return found


def dead_links(pages: dict[Path, Page], looked_at: Iterable[Path]) -> Iterator[str]:
    """Of some pages."""
    for path in looked_at:
        for link in pages[path].links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = leads_to(path.parent, unquote(parts.path)) if parts.path else path
            if target is None:
                yield f"{path.name}: {link}"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{path.name}: {link}: no such place"


@cache
def leads_to(folder: Path, link: str) -> Path | None:
    """The file, if there is one. Navigation is the same on all pages."""
    target = (folder / link).resolve()
    return target if target.is_file() else None


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert list(dead_links(pages, pages)) == []


def test_a_dead_link_would_be_found(pages: dict[Path, Page]) -> None:
    first = next(path for path in pages if path.name == "tutorial.html")
    planted = pages | {first: Page('<a href="commands.html#nowhere"></a><a href="nothing.html"></a>')}
    assert list(dead_links(planted, [first])) == [
        "tutorial.html: commands.html#nowhere: no such place",
        "tutorial.html: nothing.html",
    ]


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loads = {load for page in pages.values() for load in page.loads}
    assert len(loads) > 5
    assert not {load for load in loads if urlsplit(load).scheme not in ("", "data") or load.startswith("//")}
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", styles)


def test_the_site_can_be_searched_from_a_directory(site: Path) -> None:
    """A file that a script element loads; a browser lets no page read others from a directory."""
    index = (site / __version__ / "searchindex.js").read_text()
    assert index.startswith("Search.setIndex(")
    assert "conntrack" in index


def test_every_document_is_in_the_navigation(site: Path, pages: dict[Path, Page]) -> None:
    first = pages[site / __version__ / "index.html"]
    for document in sorted((ROOT / "docs").glob("*.md")):
        if document.name != "README.md":
            assert f"{document.stem}.html" in first.links


def test_versions_stand_beside_each_other(site: Path) -> None:
    assert f'href="{__version__}/index.html"' in (site / "index.html").read_text()

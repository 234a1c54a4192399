"""The bindings of libnftables, where they are not."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.cli.second_reader import NoSecondReader, SecondReader


@pytest.fixture(autouse=True)
def _not_loaded_yet() -> Iterator[None]:
    """Also what a test loads does not stay for the next one."""
    before = sys.modules.pop("nftables", None)
    yield
    sys.modules.pop("nftables", None)
    if before is not None:
        sys.modules["nftables"] = before


def test_without_bindings_of_nftables_one_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NoSecondReader, match=f"no nftables module in {tmp_path}: install python3-nftables"):
        SecondReader(tmp_path)


def test_bindings_without_their_library_say_so(tmp_path: Path) -> None:
    (tmp_path / "nftables").mkdir()
    broken = "class Nftables:\n    def __init__(self):\n        raise OSError('libnftables.so.1: not found')\n"
    (tmp_path / "nftables" / "__init__.py").write_text(broken)
    with pytest.raises(NoSecondReader, match=r"libnftables.so.1: not found\): install libnftables1"):
        SecondReader(tmp_path)

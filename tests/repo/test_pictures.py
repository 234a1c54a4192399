"""The picture of the demo is one that its command makes: text that moves, which asks nobody for anything, and stays small."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"
MOST_BYTES = 40_000


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_demo", IMAGES / "record_demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def texts(svg: str) -> list[str]:
    return ["".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text")]


def test_the_picture_shows_the_output_of_a_command_at_its_time(recorder: ModuleType) -> None:
    program = "import time; print(' 0.00 s  a <b>', flush=True); time.sleep(0.5); print('         0 failed & done')"
    lines = recorder.record([sys.executable, "-c", program])
    svg = recorder.picture(lines, "a test")
    assert texts(svg) == [" 0.00 s  a <b>", "         0 failed & done"]
    assert lines[0][0] < lines[1][0]
    assert lines[1][0] >= 0.5, "its time counts from the start of the command, which slept before it printed this line"
    offsets = [int(found) for found in re.findall(r"%\{transform:translateY\((-?\d+)px\)\}", svg)]
    assert offsets == sorted(offsets, reverse=True)
    assert len(offsets) == 3


def test_the_picture_in_the_tree_is_small_shows_a_whole_demo_and_loads_nothing() -> None:
    svg = (IMAGES / "demo.svg").read_text()
    assert len(svg) < MOST_BYTES
    shown = texts(svg)
    assert "3 nodes with an agent each" in shown[0]
    assert any("0 failed; all is as it must be" in line for line in shown)
    assert not re.search(r"<script|<image|<foreignObject|url\((?!#)|@import|href", svg)
    assert "prefers-reduced-motion" in svg

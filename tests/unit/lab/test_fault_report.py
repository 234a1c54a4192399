"""A run of faults as pictures, figures and a page: well-formed, with everything at its place, and nothing but text in it."""

import csv
import io
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeagent.lab.fault_verdict import NotDone
from nodeagent.lab.report.axis import Decades, Linear
from nodeagent.lab.report.folder import ReportFolder
from nodeagent.lab.report.plot import LEFT, RIGHT, plot
from nodeagent.lab.report.report_document import page, rows
from nodeagent.lab.supervisor_messages import FaultRecord, FaultReport, FaultVerdict, Recorded, ServicePath, WayCost

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text></style><script>alert(1)</script>\"'&"
WAYS = (
    ServicePath("caller-1", "pod", "ClusterIP", "10.96.0.9", 80),
    ServicePath("client", "outside", "NodePort", "2001:db8::b", 30080),
)
CONNECTIONS = (
    Recorded(0, -1.0, 0.001, "echo-1-1", ""),
    Recorded(1, 0.5, 2.0, "", "timeout"),
    Recorded(1, 1.0, 0.01, "echo-2-1", ""),
    Recorded(0, 3.0, 0.1, "echo-1-1", ""),
)
RECORD = FaultRecord("cut", 2.0, WAYS, CONNECTIONS)
REPORT = FaultReport(
    kind="cut",
    what="link of node-1 cut",
    verdict=FaultVerdict.RECOVERED,
    seconds=4.0,
    ways=(WayCost(WAYS[0], 2, {}), WayCost(WAYS[1], 2, {"timeout": 1})),
    outage=0.5,
    recovery=0.0,
    slowest=0.1,
    kept=5,
    held=5,
    seen="node-1 answered no ping",
)


def drawn(report: FaultReport = REPORT, record: FaultRecord = RECORD) -> ET.Element:
    return ET.fromstring(plot(report, record))


def points(picture: ET.Element, kind: str) -> list[tuple[float, float]]:
    """Where the path of a class has its marks."""
    path = next(one for one in picture.iter(f"{SVG}path") if one.get("class") == kind)
    return [(float(x), float(y)) for x, y in re.findall(r"M([-\d.]+),([-\d.]+)", path.get("d", ""))]


def edge(picture: ET.Element, name: str) -> float:
    return float(next(one for one in picture.iter(f"{SVG}line") if one.get("id") == f"fault-{name}").get("x1", ""))


def test_the_fault_is_marked_from_where_it_begins_to_where_it_ends() -> None:
    picture = drawn()
    times = Linear(-1.0, 3.0, LEFT, RIGHT)
    assert edge(picture, "begins") == pytest.approx(times.place(0.0), abs=0.06)
    assert edge(picture, "ends") == pytest.approx(times.place(2.0), abs=0.06)
    for shade in (one for one in picture.iter(f"{SVG}rect") if one.get("class") == "fault"):
        left, width = float(shade.get("x", "")), float(shade.get("width", ""))
        assert (left, left + width) == pytest.approx((edge(picture, "begins"), edge(picture, "ends")), abs=0.2)
    assert "over after 2.00 s" in "".join(picture.itertext())


def test_every_connection_stands_where_it_was_begun_and_as_high_as_it_took() -> None:
    picture = drawn()
    answered = points(picture, "answered")
    assert [x for x, _ in answered] == pytest.approx([LEFT, LEFT + (RIGHT - LEFT) / 2, RIGHT], abs=0.06)
    first, second, third = (y for _, y in answered)
    assert first - second == pytest.approx(second - third, abs=0.2), "ten times as long is as far again"
    assert first > third, "slower is higher"
    (crossed,) = points(picture, "failed")
    assert edge(picture, "begins") < crossed[0] < edge(picture, "ends")


def test_failures_are_red_above_the_answers() -> None:
    bars = [one.get("class") for one in drawn().iter(f"{SVG}rect")]
    assert (bars.count("bar"), bars.count("bar lost")) == (3, 1)
    none = replace(RECORD, connections=tuple(one for one in CONNECTIONS if not one.failure))
    assert [one.get("class") for one in drawn(record=none).iter(f"{SVG}rect")].count("bar lost") == 0


@given(
    st.lists(
        st.builds(
            Recorded,
            st.integers(0, 1),
            st.floats(-100, 100),
            st.floats(0, 100),
            st.text(),
            st.sampled_from(["", "timeout", "refused"]),
        ),
        max_size=30,
    ),
    st.floats(0, 100),
)
def test_every_report_can_be_drawn_and_stays_on_the_paper(connections: list[Recorded], ended: float) -> None:
    picture = drawn(record=FaultRecord("cut", ended, WAYS, tuple(connections)))
    assert LEFT <= edge(picture, "begins") <= edge(picture, "ends") <= RIGHT
    for kind in ("answered", "failed"):
        assert all(x <= RIGHT for x, _ in points(picture, kind))


def test_names_are_text_in_pictures_and_pages() -> None:
    hostile = replace(REPORT, what=HOSTILE, seen=HOSTILE, kind="cut")
    picture = drawn(hostile)
    assert [one.tag for one in picture.iter() if "script" in one.tag] == []
    assert HOSTILE in "".join(picture.itertext())
    text = page([hostile, NotDone(HOSTILE, HOSTILE)], {"cut"})
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_the_page_has_the_verdicts_figures_and_pictures_of_what_was_drawn() -> None:
    text = page([REPORT, NotDone("api", "connections failed before")], {"cut"})
    assert '<td class="good">recovered</td>' in text
    assert '<td class="bad">NOT DONE</td>' in text
    assert "connections failed before" in text
    assert re.findall(r'src="([^"]+)"', text) == ["cut.svg"]
    assert "Failed: 1 timeout" in text
    assert re.findall(r'src="([^"]+)"', page([REPORT], set())) == []


def test_the_figures_are_every_connection() -> None:
    first, failed, *_ = found = list(csv.DictReader(io.StringIO(rows(RECORD))))
    assert len(found) == len(CONNECTIONS)
    assert first == {
        "seconds_after_fault": "-1.000000",
        "client": "caller-1",
        "role": "pod",
        "kind": "ClusterIP",
        "address": "10.96.0.9",
        "port": "80",
        "family": "IPv4",
        "pod": "echo-1-1",
        "seconds": "0.001000",
        "failure": "",
    }
    assert (failed["pod"], failed["failure"], failed["family"]) == ("", "timeout", "IPv6")


def test_a_run_is_a_directory_that_replaces_the_last_one(tmp_path: Path) -> None:
    for verdict in ("recovered", "CONNECTIONS LOST"):
        folder = ReportFolder(tmp_path / "new" / "run")
        report = replace(REPORT, verdict=FaultVerdict(verdict))
        folder.add(report, RECORD)
        folder.finish([report])
        assert sorted(path.name for path in folder.index.parent.iterdir()) == ["cut.csv", "cut.svg", "index.html"]
        assert verdict in folder.index.read_text()


@given(st.floats(-1e3, 1e3), st.floats(0.01, 1e3))
def test_lines_of_a_grid_are_round_few_and_between_the_ends(least: float, width: float) -> None:
    axis = Linear(least, least + width, 0.0, 100.0)
    assert 1 <= len(axis.ticks()) <= 12
    assert all(least - 1e-6 <= tick <= least + width + 1e-6 for tick in axis.ticks())


def test_decades_are_as_far_from_each_other() -> None:
    axis = Decades(1e-4, 10.0, 100.0, 0.0)
    assert [round(axis.place(tick)) for tick in axis.ticks()] == [100, 80, 60, 40, 20, 0]
    assert axis.place(0.0) == 100.0, "what took no time stands at the foot"

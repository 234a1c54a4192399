"""Tables of `nodeagent show`: no value is ever cut, however narrow the terminal."""

import pytest

from nodeagent.cli.columns import Column, lay_out

COLUMNS = (
    Column("service", "SERVICE"),
    Column("family", "FAMILY", leaves=3),
    Column("addresses", "ADDRESSES"),
    Column("backends", "BACKENDS", number=True, leaves=2),
    Column("connections", "CONNECTIONS", number=True, leaves=1),
)
ROWS = [
    {
        "service": "default/shop:https",
        "family": "IPv4",
        "addresses": ["10.96.0.20:443/TCP", "198.51.100.20:443/TCP", "*:30443/TCP"],
        "backends": 12,
        "connections": None,
    },
    {
        "service": "default/shop:https",
        "family": "IPv6",
        "addresses": ["[2001:db8:1111:2222:3333:4444:5555:6666]:443/TCP"],
        "backends": 1,
        "connections": 123456,
    },
]
WIDE = """\
SERVICE             FAMILY  ADDRESSES                                               BACKENDS  CONNECTIONS
default/shop:https  IPv4    10.96.0.20:443/TCP, 198.51.100.20:443/TCP, *:30443/TCP        12            -
default/shop:https  IPv6    [2001:db8:1111:2222:3333:4444:5555:6666]:443/TCP               1       123456"""
WRAPPED = """\
SERVICE             FAMILY  ADDRESSES                                         BACKENDS  CONNECTIONS
default/shop:https  IPv4    10.96.0.20:443/TCP, 198.51.100.20:443/TCP,              12            -
                            *:30443/TCP
default/shop:https  IPv6    [2001:db8:1111:2222:3333:4444:5555:6666]:443/TCP         1       123456"""
NARROW = """\
SERVICE             FAMILY  ADDRESSES
default/shop:https  IPv4    10.96.0.20:443/TCP, 198.51.100.20:443/TCP,
                            *:30443/TCP
default/shop:https  IPv6    [2001:db8:1111:2222:3333:4444:5555:6666]:443/TCP"""


@pytest.mark.parametrize(
    ("width", "text", "dropped"),
    [
        pytest.param(None, WIDE, (), id="a pipe"),
        pytest.param(len(WIDE.splitlines()[0]), WIDE, (), id="wide enough"),
        pytest.param(len(WIDE.splitlines()[0]) - 1, None, (), id="a column less"),
        pytest.param(len(WRAPPED.splitlines()[0]), WRAPPED, (), id="lists wrapped as far as may be"),
        pytest.param(80, NARROW, ("BACKENDS", "CONNECTIONS"), id="80 columns"),
    ],
)
def test_lists_are_wrapped_before_columns_are_left_out(
    width: int | None, text: str | None, dropped: tuple[str, ...]
) -> None:
    table = lay_out(COLUMNS, ROWS, width)
    assert table.dropped == dropped
    assert text is None or "\n".join(table.lines) == text


def items(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("width", [*range(1, 130, 3), None])
def test_every_value_of_a_column_that_is_shown_is_there_in_full(width: int | None) -> None:
    table = lay_out(COLUMNS, ROWS, width)
    words = [word.rstrip(",") for line in table.lines[1:] for word in line.split()]
    shown = [column for column in COLUMNS if column.heading not in table.dropped]
    values = [value for row in ROWS for column in shown for value in items(row[column.key])]
    assert sorted(words) == sorted("-" if value is None else str(value) for value in values)
    assert table.lines[0].split() == [column.heading for column in shown]
    if width is not None and table.dropped != ("FAMILY", "BACKENDS", "CONNECTIONS"):
        assert max(map(len, table.lines)) <= width


def test_columns_that_distinguish_rows_are_never_left_out() -> None:
    assert lay_out(COLUMNS, ROWS, 1).lines[0].split() == ["SERVICE", "ADDRESSES"]


def test_no_rows_are_a_heading() -> None:
    assert lay_out(COLUMNS, [], 80).lines == ("SERVICE  FAMILY  ADDRESSES  BACKENDS  CONNECTIONS",)

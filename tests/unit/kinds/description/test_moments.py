"""Times as clients write them: an invalid one is refused, and what is stored can be read back and shown."""

import pytest

from nodeagent.kinds import event, lease
from nodeagent.kinds.description.decoding import TypeMismatch, normalise
from nodeagent.kinds.description.printing import age

LEASE = lease.SHAPES["Lease"]
EVENT = event.SHAPES["CoreEvent"]


@pytest.mark.parametrize(
    ("given", "seconds", "microseconds"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z", "2026-01-02T01:04:05.000000Z"),
        ("0099-01-01T00:00:00Z", "0099-01-01T00:00:00Z", "0099-01-01T00:00:00.000000Z"),
        ("0001-01-01T00:00:00.0Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_a_time_is_stored_so_that_it_can_be_read_again(given: str, seconds: str, microseconds: str) -> None:
    found = normalise(EVENT, {"lastTimestamp": given, "eventTime": given})
    assert (found["lastTimestamp"], found["eventTime"]) == (seconds, microseconds)
    assert normalise(EVENT, found) == found
    renewed = normalise(LEASE, {"spec": {"renewTime": given}})
    assert normalise(LEASE, renewed) == renewed


@pytest.mark.parametrize(
    "given",
    [
        pytest.param("2026-99-99T99:99:99Z", id="no such day"),
        pytest.param("2026-01-01T00:00:60Z", id="no such second"),
        pytest.param("\uff12\uff1026-01-01T00:00:00Z", id="other digits"),
        pytest.param("0001-01-01T00:00:00+23:00", id="before the year 1"),
        pytest.param("9999-12-31T23:59:59-23:00", id="after the year 9999"),
        pytest.param("2026-W01-1T00:00Z", id="a week"),
        pytest.param("2026-01-01 00:00:00Z", id="a blank"),
        pytest.param("2026-01-01T00:00:00", id="no zone"),
        pytest.param("2026-01-01T00:00:00Z\n", id="a line"),
        pytest.param("", id="nothing"),
    ],
)
@pytest.mark.parametrize("field", ["lastTimestamp", "eventTime"])
def test_text_that_is_not_a_time_is_refused(field: str, given: str) -> None:
    with pytest.raises(TypeMismatch):
        normalise(EVENT, {field: given})


@pytest.mark.parametrize("stored", ["2026-99-99T99:99:99Z", "2026", "never"])
def test_a_list_is_shown_with_any_stored_time(stored: str) -> None:
    assert age(stored, 0.0) == "<unknown>"

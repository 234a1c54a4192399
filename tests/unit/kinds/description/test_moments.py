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


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((-2, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (121, "2m1s"), (599, "9m59s"), (600, "10m")),
        *((3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (8 * 3600 - 1, "7h59m"), (8 * 3600, "8h")),
        *((48 * 3600 - 1, "47h"), (48 * 3600, "2d"), (49 * 3600, "2d1h"), (8 * 86400 - 1, "7d23h"), (8 * 86400, "8d")),
        *((730 * 86400 - 1, "729d"), (730 * 86400, "2y"), (731 * 86400, "2y1d"), (8 * 365 * 86400, "8y"), (3000 * 86400, "8y")),
    ],
)  # fmt: skip
def test_an_age_is_shown_as_kubectl_does(seconds: int, shown: str) -> None:
    """As HumanDuration of k8s.io/apimachinery/pkg/util/duration."""
    assert age("2026-01-02T03:04:05Z", 1_767_323_045.0 + seconds) == shown

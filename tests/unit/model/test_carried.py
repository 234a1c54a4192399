"""What carries a ClusterIP: itself, or the range that it is in."""

import pytest

from nodeagent.model.carried import carried_by, carried_ranges

RANGES = ("10.96.0.0/12", "fd00:10:96::/108", "fd00:200::/112")


@pytest.mark.parametrize(
    ("cluster_ip", "carried"),
    [
        pytest.param("10.99.1.2", ("10.99.1.2",), id="IPv4"),
        pytest.param("fd00:10:96::", ("fd00:10:96::",), id="the first of a range"),
        pytest.param("fd00:10:96::a", ("fd00:10:96::a",), id="chosen by hand"),
        pytest.param("fd00:10:96::ff", ("fd00:10:96::ff",), id="the last of those"),
        pytest.param("fd00:10:96::100", ("fd00:10:96::/108", "fd00:10:96::"), id="the next one"),
        pytest.param("fd00:10:96::f:ffff", ("fd00:10:96::/108", "fd00:10:96::"), id="the last of the range"),
        pytest.param("fd00:10:96::10:0", ("fd00:10:96::10:0",), id="behind it"),
        pytest.param("fd00:200::1234", ("fd00:200::/112", "fd00:200::"), id="of another range"),
        pytest.param("fd00:300::1234", ("fd00:300::1234",), id="of no range"),
    ],
)
def test_an_ipv6_cluster_ip_that_nobody_chose_is_carried_by_its_range(
    cluster_ip: str, carried: tuple[str, ...]
) -> None:
    assert carried_by(cluster_ip, carried_ranges(RANGES)) == carried


@pytest.mark.parametrize("cidr", ["fd00:96::/120", "fd00:96::/128", "10.96.0.0/12", "fd00::/63", "fc00::/7"])
def test_small_ranges_huge_ones_and_those_of_ipv4_carry_nothing(cidr: str) -> None:
    assert carried_ranges([cidr]) == ()


def test_a_range_of_more_than_is_chosen_by_hand_carries_the_rest() -> None:
    (found,) = carried_ranges(["fd00:96::/119"])
    assert (found.high - found.low + 1, carried_by("fd00:96::1ff", (found,))[0]) == (256, "fd00:96::/119")

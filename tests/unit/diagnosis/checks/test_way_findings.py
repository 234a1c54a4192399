"""What is said of connections that get through, or do not."""

from nodeagent.diagnosis.checks.finding import Result
from nodeagent.diagnosis.checks.way_findings import WayFact, way_findings


def test_a_share_of_the_cases_is_no_whole_service() -> None:
    fact = WayFact("IPv4", "this node", 11, 10, "a -> b:80/TCP", "no route", "add one", fault=True, share="1/3")
    (found,) = way_findings((fact,))
    assert found.result is Result.FAILED
    assert found.detail.startswith(
        "from this node: connections to 10 of 11 Services fail (a -> b:80/TCP, in 1/3 of all cases): no route"
    )


def test_findings_that_were_left_out_are_counted() -> None:
    (found,) = way_findings((WayFact("IPv4", "this node", 2, left_out=12),))
    assert (found.result, found.detail) == (
        Result.OK,
        "from this node: 2 of 2 Services are reached; 12 of their endpoints were not followed",
    )
    (whole,) = way_findings((WayFact("IPv4", "this node", 2),))
    assert whole.detail == "from this node: 2 of 2 Services are reached"

"""ClusterIPs that are no addresses of the node, clients that there is no room for, rules outside of IP."""

import pytest

from nodeagent.diagnosis.checks.affinity_room import affinity_finding
from nodeagent.diagnosis.checks.finding import Result
from nodeagent.diagnosis.checks.programs import rules_outside
from nodeagent.diagnosis.checks.service_interface import InterfaceFact, interface_findings


@pytest.mark.parametrize(
    ("there", "missing", "lost", "result", "says"),
    [
        (True, (), False, Result.OK, "4 of 4 ClusterIPs are addresses of this node"),
        (
            True,
            ("10.96.0.1",),
            False,
            Result.FAILED,
            "1 of 4 ClusterIPs are not addresses of this node (10.96.0.1): somebody",
        ),
        (
            False,
            ("10.96.0.1",) * 4,
            True,
            Result.FAILED,
            "(10.96.0.1, 10.96.0.1, 10.96.0.1, …), and it has no route to them",
        ),
        (
            False,
            ("10.96.0.1",) * 4,
            False,
            Result.NOTE,
            "there is no nodeagent0, its own processes connect by way of a route",
        ),
    ],
)
def test_cluster_ips_that_are_not_here(
    there: bool, missing: tuple[str, ...], lost: bool, result: Result, says: str
) -> None:
    (found,) = interface_findings(InterfaceFact("nodeagent0", there, 4, missing, lost))
    assert (found.result, says in found.detail) == (result, True), found


def test_cluster_ips_on_the_route_of_their_range_are_counted() -> None:
    (found,) = interface_findings(InterfaceFact("nodeagent0", there=True, cluster_ips=4, ranged=3))
    assert found.result is Result.OK
    assert found.detail == "4 of 4 ClusterIPs are addresses of this node, 3 of them by the route of their range"


def test_without_cluster_ips_there_is_nothing_to_say() -> None:
    assert not list(interface_findings(InterfaceFact("nodeagent0", there=True, cluster_ips=0)))


@pytest.mark.parametrize(
    ("count", "result"), [(0, Result.OK), (89, Result.OK), (90, Result.NOTE), (99, Result.NOTE), (100, Result.FAILED)]
)
def test_room_for_clients_with_affinity(count: int, result: Result) -> None:
    found = affinity_finding("IPv4", count, 100)
    assert (found.result, f"{count} of 100 clients" in found.detail) == (result, True)


def test_tables_that_are_not_evaluated_are_named() -> None:
    (found,) = rules_outside(["netdev guard"])
    assert (found.result, "table netdev guard" in found.detail) == (Result.NOTE, True)
    assert found.cure.endswith("nft list table netdev guard")
    assert not list(rules_outside([]))

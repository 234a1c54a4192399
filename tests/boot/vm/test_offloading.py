"""Established connections in a flowtable (`dataplane.flowtable`), on Debian 12's and Debian 13's own kernels: they bypass the chains of the
forward hook, and all else is as without it."""

import re
from typing import Any

import pytest

from .conftest import Report

LOCAL_PORT = "30081"


@pytest.fixture
def opened(offloading: Report) -> dict[str, Any]:
    found: dict[str, Any] = offloading.facts["opened"]
    return found


def states(report: Report) -> list[str]:
    """What connection tracking says of each connection that was opened."""
    return [line for line in report.facts["tracked"].splitlines() if line]


def test_the_table_has_a_flowtable_with_the_interfaces_of_the_node_and_no_problem(offloading: Report) -> None:
    assert offloading.facts["devices"].count("devices = { caller, eth0, web-0, web-1, web-2 }") == 2
    assert "chain forward" in offloading.facts["ruleset"]
    assert "NoFlowtables" not in "\n".join(offloading.facts["log"])


def test_every_connection_is_offloaded(offloading: Report, opened: dict[str, Any]) -> None:
    """From a pod, from an endpoint also to itself, from outside to ClusterIPs, node ports and external addresses with either policy."""
    assert len(opened) == 12
    assert not [name for name, survey in opened.items() if survey["failures"]]
    assert len(states(offloading)) == 12 * 30
    assert all("[OFFLOAD]" in line for line in states(offloading))


def test_sources_are_kept_and_replaced_as_without_it(opened: dict[str, Any]) -> None:
    assert opened["caller 10.96.0.10 80"]["peers"] == ["10.244.1.200"]
    assert opened["web-0 10.96.0.10 80"]["peers"] == ["10.244.1.1", "10.244.1.10"], (
        "a pod that reaches itself is masqueraded"
    )
    assert opened["outside 192.168.0.2 30080"]["peers"] == ["10.244.1.1", "192.168.0.2"]
    for local in (f"192.168.0.2 {LOCAL_PORT}", "198.51.100.20 80"):
        assert opened[f"outside {local}"]["peers"] == ["203.0.113.2"]
        assert set(opened[f"outside {local}"]["names"]) == {"web-0"}


def test_further_packets_pass_no_chain_and_reach_the_same_endpoints(offloading: Report, opened: dict[str, Any]) -> None:
    before, after = offloading.facts["forwarded"]

    assert before == after
    assert offloading.facts["again"] == [opened] * 3


def test_connections_go_on_without_an_agent_and_after_a_restart(offloading: Report, opened: dict[str, Any]) -> None:
    assert offloading.facts["without an agent"] == opened
    assert offloading.facts["restart"]["answers"] == opened


def test_a_restart_writes_nothing(offloading: Report) -> None:
    restart = offloading.facts["restart"]
    before, after = restart["generations"]

    assert restart["elements"] == 0
    assert restart["devices"][0] == restart["devices"][1]
    assert offloading.release == "6.12." or before == after, "an owned table is claimed"


def test_the_interface_of_a_new_pod_becomes_a_device(offloading: Report) -> None:
    before, after = offloading.facts["a pod came"]

    assert "late" not in before
    assert after.count("late") == 2


def test_a_udp_client_is_moved_when_its_endpoint_leaves(offloading: Report) -> None:
    udp = offloading.facts["udp"]

    assert udp["offloaded"] == [udp["first"]] * 5
    assert udp["chains saw"] == 0
    assert udp["first"] not in udp["then"]
    assert "" not in udp["then"]


def test_tcp_goes_on_when_its_endpoint_leaves(offloading: Report, opened: dict[str, Any]) -> None:
    assert offloading.facts["tcp of an endpoint that left"] == opened


def test_a_connection_that_ended_is_forgotten_as_without_it(offloading: Report) -> None:
    """TIME_WAIT, for two minutes; not established, for a day."""
    ended = offloading.facts["ended"]

    assert len(ended) >= 60
    assert all(re.search(r" (TIME_WAIT|CLOSE) ", line) for line in ended)
    assert all(int(line.split()[2]) <= 120 for line in ended)


def test_switched_off_the_same_table_has_no_flowtable_and_connections_go_through_its_chains(
    offloading: Report, opened: dict[str, Any]
) -> None:
    off = offloading.facts["off"]

    assert "flow" not in off["ruleset"]
    assert off["handles"][0] == off["handles"][1]
    assert "[OFFLOAD]" not in off["tracked"]
    assert off["forwarded"] > 0
    assert off["answers"] == {name: opened[name] for name in off["answers"]}
    assert len(off["answers"]) == 10

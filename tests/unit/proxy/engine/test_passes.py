"""What a pass does, and in which order."""

import asyncio
from itertools import pairwise

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import Node, NodeAddress, NodeStatus, ObjectMeta, ServiceCIDR, ServiceCIDRSpec
from nodeagent.model.problem import Retryable
from nodeagent.proxy.engine.sync import Timing

from .conftest import QUICK, Bench, RunEngine

WEB = ObjectKey("default", "web")


def test_nothing_is_programmed_before_the_first_full_lists(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        await asyncio.sleep(0.03)
        assert not bench.table.calls
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert set(bench.table.calls[0]) == {WEB}

    with_engine(scenario)


def test_many_updates_of_one_service_are_one_entry(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        for last in range(50):
            bench.cluster.put("web", "10.96.0.1", f"10.244.0.{last + 1}")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        state = bench.table.calls[-1][WEB]
        assert state is not None
        assert [backend.address for backend in state.frontends[0].route.backends] == ["10.244.0.50"]

    with_engine(scenario)


def test_an_update_that_changes_nothing_reaches_no_driver(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert bench.table.calls[-1] == {}
        assert bench.log == ["table IPv4", "interface sync"]

    with_engine(scenario)


def test_new_cluster_ips_come_after_the_table_and_old_ones_go_before_it(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.log.clear()
        bench.cluster.delete("web")
        bench.cluster.put("api", "10.96.0.2", "10.244.0.2")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert bench.log == ["interface -10.96.0.1", "table IPv4", "interface +10.96.0.2"]

    with_engine(scenario)


@pytest.mark.parametrize("why", ["the full sync period", "somebody's change", "an interface that failed"])
def test_the_order_holds_after_what_the_kernel_holds_was_forgotten(with_engine: RunEngine, why: str) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.interface.complete = why != "an interface that failed"
        bench.cluster.put("other", "10.96.0.3", "10.244.0.1")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        bench.interface.complete = True
        if why == "somebody's change":
            bench.changes.interface_changed()
        bench.log.clear()
        bench.cluster.delete("web")
        bench.cluster.put("api", "10.96.0.2", "10.244.0.2")
        await bench.until(lambda: "interface sync" in bench.log)
        assert bench.log[:3] == ["interface -10.96.0.1", "table IPv4", "interface sync"]
        assert "10.96.0.2" in bench.interface.vips

    full_sync = 2.0 if why == "the full sync period" else 0.0
    with_engine(scenario, Timing(min_period_seconds=5.0, full_sync_period_seconds=full_sync))


IN_RANGE, RANGE, FIRST = "fd00:96::1:1", "fd00:96::/108", "fd00:96::"


def ranges(*cidrs: str) -> tuple[ServiceCIDR, ...]:
    return (ServiceCIDR(ObjectMeta(name="kubernetes"), ServiceCIDRSpec(cidrs)),)


def test_ipv6_cluster_ips_that_nobody_chose_share_the_route_of_their_range(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.service_cidrs = ranges(RANGE)
        bench.cluster.put("web", IN_RANGE, "fd00:244::1")
        bench.cluster.put("chosen", "fd00:96::a", "fd00:244::1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert bench.interface.vips == {"fd00:96::a", RANGE, FIRST}
        bench.log.clear()
        bench.cluster.put("api", "fd00:96::1:2", "fd00:244::1")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        bench.cluster.delete("web")
        await bench.until(lambda: len(bench.recorder.reports) == 3)
        assert [line for line in bench.log if line.startswith("interface")] == []
        bench.cluster.delete("api")
        await bench.until(lambda: len(bench.recorder.reports) == 4)
        assert bench.interface.vips == {"fd00:96::a"}

    with_engine(scenario, families=(Family.IPV6,))


def test_when_a_range_comes_or_goes_the_new_way_is_there_before_the_old_one_goes(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", IN_RANGE, "fd00:244::1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        for cidrs, carried in (((RANGE,), {RANGE, FIRST}), ((), {IN_RANGE}), (("fd00:96::/112",), {IN_RANGE})):
            bench.log.clear()
            passes = len(bench.recorder.reports)
            bench.cluster.service_cidrs = ranges(*cidrs)
            bench.changes.service_cidrs_changed()
            await bench.until(lambda passes=passes: len(bench.recorder.reports) > passes)  # type: ignore[misc]
            assert bench.interface.vips == carried
            # One call that makes the new before it takes the old (`InterfacePlan`), where anything changes at all.
            assert [line for line in bench.log if line.startswith("interface")] in (["interface sync"], [])

    with_engine(scenario, families=(Family.IPV6,))


def test_routes_that_an_agent_without_ranges_left_stay_until_the_range_is_there(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.interface.vips = {IN_RANGE, "fd00:96::1:9"}
        bench.cluster.service_cidrs = ranges(RANGE)
        bench.cluster.put("web", IN_RANGE, "fd00:244::1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert bench.log == ["interface -fd00:96::1:9", "table IPv6", "interface sync"]
        assert bench.interface.vips == {RANGE, FIRST}

    with_engine(scenario, families=(Family.IPV6,))


def test_addresses_left_by_an_earlier_agent_go_before_its_table_changes(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.interface.vips = {"10.96.0.9", "10.96.0.1"}
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert bench.log == ["interface -10.96.0.9", "table IPv4", "interface sync"]

    with_engine(scenario)


def test_a_changed_interface_is_brought_back_at_once(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.interface.vips = set()
        bench.changes.interface_changed()
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert bench.interface.vips == {"10.96.0.1"}
        assert bench.table.calls[-1] == {}

    with_engine(scenario)


def test_the_interface_learns_of_another_node_address(with_engine: RunEngine) -> None:
    def known_by(address: str) -> Node:
        return Node(ObjectMeta("node-a"), status=NodeStatus((NodeAddress("InternalIP", address),)))

    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert list(bench.interface.node_addresses) == ["192.0.2.1"]
        for address in ("2001:db8::b", "2001:db8::c"):
            passes = len(bench.recorder.reports)
            bench.cluster.node = known_by(address)
            bench.changes.node_changed()
            await bench.until(lambda passes=passes: len(bench.recorder.reports) > passes)  # type: ignore[misc]
            assert list(bench.interface.node_addresses) == ["192.0.2.1", address]
        bench.log.clear()
        bench.changes.node_changed()
        passes = len(bench.recorder.reports)
        await bench.until(lambda: len(bench.recorder.reports) > passes)
        assert "interface sync" not in bench.log

    with_engine(scenario, families=(Family.IPV4, Family.IPV6))


def test_a_cluster_ip_that_passes_to_another_service_stays(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.log.clear()
        bench.cluster.delete("web")
        bench.cluster.put("api", "10.96.0.1", "10.244.0.2")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert bench.log == ["table IPv4"]
        assert bench.interface.vips == {"10.96.0.1"}

    with_engine(scenario)


def test_passes_keep_their_distance_under_load(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        for last in range(40):
            bench.cluster.put("web", "10.96.0.1", f"10.244.0.{last + 1}")
            await asyncio.sleep(0.005)
        await bench.until(lambda: bench.changes.oldest is None)
        reports = bench.recorder.reports[1:]
        gaps = [later.started - earlier.finished for earlier, later in pairwise(reports)]
        assert len(reports) < 20
        assert min(gaps) > 0.0199

    with_engine(scenario, Timing(min_period_seconds=0.02, guard_period_seconds=0.01, backoff=QUICK.backoff))


def test_all_objects_are_looked_at_again_after_the_resync_period(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) >= 3)
        assert [report.full for report in bench.recorder.reports[:3]] == [True, True, True]
        assert bench.table.compared == 0

    with_engine(scenario, Timing(resync_period_seconds=0.02, guard_period_seconds=0.01, backoff=QUICK.backoff))


def test_the_kernel_is_compared_with_after_the_full_sync_period(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: bench.table.compared >= 2)
        assert bench.recorder.reports[-1].full
        assert bench.log.count("interface sync") >= 2

    with_engine(scenario, Timing(full_sync_period_seconds=0.02, guard_period_seconds=0.01, backoff=QUICK.backoff))


def test_foreign_changes_lead_to_a_pass(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.table.interfered = True
        await bench.until(lambda: len(bench.recorder.reports) == 2)

    with_engine(scenario)


def test_changes_without_end_do_not_keep_from_looking_what_others_do(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        before, number = bench.table.looks, 0

        def looked_often_enough() -> bool:
            nonlocal number
            number += 1
            bench.cluster.put("web", "10.96.0.1", f"10.244.0.{number % 250}")
            return bench.table.looks >= before + 3

        await bench.until(looked_often_enough)
        assert len(bench.recorder.reports) > 4

    with_engine(scenario)


def test_udp_ports_are_handed_over_after_programming_and_once_more_when_they_vanish(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("dns", "10.96.0.10", "10.244.0.1", protocol="UDP")
        bench.cluster.put("web", "10.96.0.11", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert [port.serving for port in bench.recorder.udp] == [frozenset({("10.244.0.1", 8080)})]
        bench.cluster.delete("dns")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert [port.serving for port in bench.recorder.udp[1:]] == [frozenset()]

    with_engine(scenario)


def test_families_are_programmed_one_by_one(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.cluster.put("web6", "fd00:96::1", "fd00:244::1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert bench.log == ["table IPv4", "table IPv6", "interface sync"]
        assert bench.interface.vips == {"10.96.0.1", "fd00:96::1"}

    with_engine(scenario, families=(Family.IPV4, Family.IPV6))


@pytest.mark.parametrize(
    ("read_back", "repairs", "looked_again"),
    [(True, 1, [Family.IPV4]), (True, 0, []), (False, 1, [])],
    ids=["repaired", "found in order", "not read"],
)
def test_flows_are_looked_at_again_where_a_table_was_not_what_it_should_be(
    with_engine: RunEngine, read_back: bool, repairs: int, looked_again: list[Family]
) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.table.read_back, bench.table.repairs, bench.table.interfered = read_back, repairs, True
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert bench.recorder.looked_again == looked_again

    with_engine(scenario)


def test_flows_are_looked_at_again_after_a_pass_whose_outcome_is_unknown(with_engine: RunEngine) -> None:
    """It may have repaired the table: the next pass then finds it in order."""

    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.table.read_back, bench.table.interfered = True, True
        bench.table.fail_with = [Retryable("the answer was lost")]
        await bench.until(lambda: len(bench.recorder.reports) == 3)
        assert bench.recorder.looked_again == [Family.IPV4]
        bench.table.interfered = True
        await bench.until(lambda: len(bench.recorder.reports) == 4)
        assert bench.recorder.looked_again == [Family.IPV4], "only once"

    with_engine(scenario)

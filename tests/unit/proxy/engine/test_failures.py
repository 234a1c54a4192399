"""What happens when programming fails."""

import asyncio

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.backoff import Backoff
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Interrupted, Retryable, Unusable
from nodeagent.proxy.engine.sync import FATAL_FAILURES, SyncFailedError

from .conftest import Bench, RunEngine

BOTH = (Family.IPV4, Family.IPV6)
WEB = ObjectKey("default", "web")


@pytest.mark.parametrize(("failures", "seconds"), [(1, 0.1), (2, 0.2), (5, 1.6), (9, 25.6), (10, 30.0), (10_000, 30.0)])
def test_backoff_doubles_up_to_its_longest(failures: int, seconds: float) -> None:
    assert Backoff().seconds(failures) == pytest.approx(seconds)


def test_a_failed_pass_is_tried_again(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: bool(bench.recorder.reports))
        bench.table.fail_with = [Retryable("busy"), Retryable("busy")]
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        await bench.until(lambda: len(bench.recorder.reports) == 4)
        assert [report.ok for report in bench.recorder.reports] == [True, False, False, True]

    with_engine(scenario)


def test_one_failing_family_does_not_stop_the_other(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.tables[1].fail_with = [Unusable("table owned by another process")] * 10_000
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) > FATAL_FAILURES + 2)
        bench.cluster.put("api", "10.96.0.2", "10.244.0.2")
        await bench.until(lambda: any(ObjectKey("default", "api") in call for call in bench.tables[0].calls))
        results = bench.recorder.reports[-1].families
        assert results[Family.IPV4].error is None
        assert results[Family.IPV6].error == "table owned by another process"

    with_engine(scenario, families=BOTH)


def test_errors_in_every_family_that_need_a_person_end_the_engine(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        for table in bench.tables:
            table.fail_with = [Unusable("no CAP_NET_ADMIN")]
        bench.changes.synced()
        await bench.until(lambda: bool(bench.recorder.reports))
        await asyncio.sleep(0.01)

    with pytest.raises(Unusable, match="no CAP_NET_ADMIN"):
        with_engine(scenario, families=BOTH)


def test_the_interface_of_another_agent_is_left_alone(with_engine: RunEngine) -> None:
    """Its tables cannot be had, so nothing that this agent wants to be local is guarded, and the other's addresses are."""

    async def scenario(bench: Bench) -> None:
        bench.interface.vips = {"10.96.0.9"}
        for table in bench.tables:
            table.other_owner = True
            table.fail_with = [Unusable("table owned by another process")]
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: bool(bench.recorder.reports))
        assert bench.interface.vips == {"10.96.0.9"}
        assert bench.log == []
        await asyncio.sleep(0.01)

    with pytest.raises(Unusable, match="owned by another"):
        with_engine(scenario, families=BOTH)


def test_the_interface_is_taken_over_with_the_first_table_that_can_be_had(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.interface.vips = {"10.96.0.9"}
        bench.tables[0].other_owner = True
        bench.tables[0].fail_with = [Unusable("table owned by another process")] * 10_000
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: bool(bench.recorder.reports))
        assert bench.interface.vips == set(), "IPv4 is not guarded, and what nobody has goes"

    with_engine(scenario, families=BOTH)


def test_failing_for_ever_ends_the_engine(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.table.fail_with = [Retryable("busy")] * 100
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == FATAL_FAILURES)
        await asyncio.sleep(0.02)

    with pytest.raises(SyncFailedError, match="busy"):
        with_engine(scenario)


def test_being_interrupted_by_others_for_ever_ends_nothing(with_engine: RunEngine) -> None:
    """It says nothing about us: neither is it a failure to give up after, nor may the pause grow."""

    async def scenario(bench: Bench) -> None:
        bench.table.fail_with = [Interrupted("others write")] * (3 * FATAL_FAILURES)
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: bool(bench.recorder.reports) and bench.recorder.reports[-1].ok)
        assert len(bench.recorder.reports) == 3 * FATAL_FAILURES + 1
        bench.table.fail_with = [Interrupted("others write")] * (3 * FATAL_FAILURES)
        bench.cluster.put("api", "10.96.0.2", "10.244.0.2")
        await bench.until(lambda: len(bench.recorder.reports) == 6 * FATAL_FAILURES + 2)
        assert bench.recorder.reports[-1].ok

    with_engine(scenario)


@pytest.mark.parametrize("error", [Retryable("no answer"), Interrupted("others write"), OSError("no buffer")])
def test_a_look_that_fails_is_repeated(with_engine: RunEngine, error: Exception) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.table.interfered = True
        bench.table.look_fails_with = [error] * 20
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert not bench.table.look_fails_with

    with_engine(scenario)


def test_udp_flows_are_not_cleaned_before_their_family_is_programmed(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: bool(bench.recorder.reports))
        bench.table.fail_with = [Retryable("busy")]
        bench.cluster.put("dns", "10.96.0.10", "10.244.0.1", protocol="UDP")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        assert not bench.recorder.udp
        await bench.until(lambda: bool(bench.recorder.udp))
        assert bench.recorder.reports[-1].ok

    with_engine(scenario)


def test_an_interface_that_fails_is_a_problem_and_tried_again(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.interface.fail_with = [OSError(1, "not permitted"), Retryable("interface of another kind")]
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: bench.interface.vips == {"10.96.0.1"})
        first = bench.recorder.reports[0]
        assert first.ok
        assert "NotProgrammed" in {problem.reason for problem in first.problems}
        await bench.until(lambda: not bench.recorder.reports[-1].problems)

    with_engine(scenario)


def test_a_cluster_ip_is_not_local_before_its_family_is_programmed(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.tables[1].fail_with = [Retryable("busy")] * 3
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.cluster.put("web6", "fd00:96::1", "fd00:244::1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 3)
        assert bench.interface.vips == {"10.96.0.1"}
        await bench.until(lambda: bench.recorder.reports[-1].ok)
        assert bench.interface.vips == {"10.96.0.1", "fd00:96::1"}

    with_engine(scenario, families=BOTH)

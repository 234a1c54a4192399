"""The engine proves that it gets on: heartbeats come from its steps, and a step that hangs makes them stop."""

import asyncio

from nodeagent.model.backoff import Backoff
from nodeagent.model.problem import Retryable
from nodeagent.proxy.engine.sync import Timing

from .conftest import Bench, RunEngine


async def more_beats(bench: Bench, count: int = 5) -> None:
    before = bench.recorder.beats
    await bench.until(lambda: bench.recorder.beats >= before + count)


def test_an_idle_engine_beats(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        await more_beats(bench)
        assert len(bench.recorder.reports) == 1

    with_engine(scenario)


def test_an_engine_that_waits_for_its_first_lists_does_not_beat(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        await asyncio.sleep(0.05)
        assert bench.recorder.beats == 0

    with_engine(scenario)


def test_every_step_of_a_pass_beats(with_engine: RunEngine) -> None:
    """Guard rounds of an hour: what is counted comes from the pass."""

    async def scenario(bench: Bench) -> None:
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        assert bench.recorder.beats >= 2, "translated, and one table programmed"

    with_engine(scenario, Timing(guard_period_seconds=3600))


def test_a_pass_that_hangs_is_silent(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.table.hang = True
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        await bench.until(lambda: len(bench.table.calls) == 2)
        stopped = bench.recorder.beats
        await asyncio.sleep(0.05)
        assert bench.recorder.beats == stopped

    with_engine(scenario)


def test_pauses_between_attempts_and_passes_are_no_silence(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.table.fail_with = [Retryable("busy")]
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        await more_beats(bench)
        assert len(bench.recorder.reports) == 1, "the second attempt is an hour away"

    with_engine(scenario, Timing(guard_period_seconds=0.01, backoff=Backoff(first_seconds=3600, longest_seconds=3600)))


def test_a_long_pause_after_a_pass_is_no_silence(with_engine: RunEngine) -> None:
    async def scenario(bench: Bench) -> None:
        bench.changes.synced()
        await bench.until(lambda: len(bench.recorder.reports) == 1)
        bench.cluster.put("web", "10.96.0.1", "10.244.0.1")
        await bench.until(lambda: len(bench.recorder.reports) == 2)
        bench.cluster.put("web", "10.96.0.1", "10.244.0.2")
        await more_beats(bench)
        assert len(bench.recorder.reports) == 2

    with_engine(scenario, Timing(guard_period_seconds=0.01, min_period_seconds=3600))

"""The law of hostile bytes at length, and with an eye on memory; NODEAGENT_EXAMPLES says how many of each kind."""

import gc
import os
import tracemalloc

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.harness.fuzzing.mutation import Target, mutated
from tests.harness.fuzzing.targets import TARGETS

EXAMPLES = int(os.environ.get("NODEAGENT_EXAMPLES", "5000"))
ROUNDS = 10
GROWTH_BYTES = 200_000


def attack(target: Target, examples: int) -> None:
    many = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    many(given(mutated(target))(target.check))()


@pytest.mark.parametrize("target", [pytest.param(target, id=target.name) for target in TARGETS])
def test_any_bytes_are_read_or_refused(target: Target) -> None:
    attack(target, EXAMPLES)


@pytest.mark.parametrize("target", [pytest.param(target, id=target.name) for target in TARGETS])
def test_reading_the_same_again_keeps_nothing(target: Target) -> None:
    """Broken input too: each seed cut off in its middle, again and again."""
    broken = [data for seed in target.seeds for data in (seed, seed[: len(seed) // 2])][:10]

    def read_all() -> int:
        for data in broken:
            target.check(data)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        for _ in range(3):
            before = read_all()
        for _ in range(ROUNDS):
            after = read_all()
    finally:
        tracemalloc.stop()
    print(f"{target.name}: {after - before:+} bytes after {ROUNDS * len(broken)} more")
    assert after - before < GROWTH_BYTES

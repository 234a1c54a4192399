"""Law: whatever bytes arrive from outside, only errors come of them that are meant for it.

`make attack` runs the same with many more.
"""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.harness.effort import examples
from tests.harness.fuzzing.mutation import Target, mutated
from tests.harness.fuzzing.targets import TARGETS

FEW = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("target", [pytest.param(target, id=target.name) for target in TARGETS])
def test_any_bytes_are_read_or_refused(target: Target) -> None:
    for data in (*target.seeds, *target.corpus()):
        target.check(data)
    FEW(given(mutated(target))(target.check))()

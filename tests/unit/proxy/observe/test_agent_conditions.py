"""When the agent's own process has a problem: its loop, its files, its clock, another agent."""

import asyncio
import os
import resource
from collections.abc import Iterable

import pytest

from nodeagent.model.problem import Problem
from nodeagent.proxy.observe import agent_conditions
from nodeagent.proxy.observe.admin import presence
from nodeagent.proxy.observe.admin.presence import SLOTS, SYSTEM_USERS, Presence, agents_here
from nodeagent.proxy.observe.agent_conditions import CLOCK_SECONDS, AgentConditions, clock_problems


@pytest.fixture(autouse=True)
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other agent of this machine is in the way."""
    monkeypatch.setattr(presence, "_name", lambda slot: f"\0nodeagent-test-{os.getpid()}-{slot}")


def reasons(late: Iterable[float]) -> list[set[str]]:
    """The problems after each time that the loop was so late."""
    seen: list[set[str]] = []
    now: set[str] = set()

    def report(problems: Iterable[Problem]) -> None:
        nonlocal now
        now = {one.reason for one in problems}

    async def watch(woke: object) -> None:
        assert callable(woke)
        for seconds in late:
            woke(seconds)
            seen.append(now)

    async def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(agent_conditions, "watch_loop", watch)
            await AgentConditions(report, late=lambda _: None, ahead=lambda: None).run()

    asyncio.run(run())
    return seen


def test_a_loop_that_is_late_once_is_no_problem() -> None:
    assert all(found == set() for found in reasons([0.0] * 10 + [30.0] + [0.0] * 20))


def test_a_loop_that_is_late_again_and_again_is_one_until_it_was_in_time_for_long() -> None:
    found = reasons([0.0] * 10 + [0.9] * 6 + [0.0] * 20)
    assert found[9] == set()
    assert found[15] == {"LoopLate"}
    assert found[-1] == set()


def test_few_files_that_can_be_opened() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    try:
        for limit, expected in ((lowest + 1, {"FilesShort"}), (3 * lowest + 100, set())):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limits[1]))
            assert {one.reason for one in agent_conditions._files()} == expected
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_agents_see_each_other_and_not_themselves() -> None:
    first = Presence()
    assert (first.others, agents_here()) == (0, 1)
    second = Presence()
    assert (first.others, second.others, agents_here()) == (1, 1, 2)
    more = [Presence() for _ in range(SLOTS)]
    assert agents_here() == SLOTS
    assert more[-1].others == SLOTS, "it holds no name"
    for one in (*more, second):
        one.close()
    assert (first.others, agents_here()) == (0, 1)
    first.close()
    assert agents_here() == 0


@pytest.mark.kernel
@pytest.mark.parametrize(("user", "seen"), [(0, 1), (SYSTEM_USERS - 1, 1), (SYSTEM_USERS, 0), (65534, 0)])
def test_a_name_that_another_user_has_taken_is_no_agent(user: int, seen: int) -> None:
    ours = Presence()
    os.seteuid(user)
    try:
        taker = Presence()
    finally:
        os.seteuid(0)
    try:
        assert (ours.others, agents_here()) == (seen, 1 + seen)
    finally:
        taker.close()
        ours.close()


@pytest.mark.parametrize(
    ("ahead", "says"),
    [(None, ""), (CLOCK_SECONDS, ""), (CLOCK_SECONDS + 1, "ahead of"), (-CLOCK_SECONDS - 1, "behind")],
)
def test_a_clock_that_differs_by_more_than_a_minute(ahead: float | None, says: str) -> None:
    found = list(clock_problems(ahead))
    assert len(found) == bool(says)
    assert all(f"s {says} the API server's" in one.detail for one in found)

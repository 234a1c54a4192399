"""A stopwatch counts what something takes, not what others take of the processor meanwhile."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import cast

import pytest

from nodeagent.lab.net.network_namespaces import LabError
from tests.harness import stopwatch
from tests.harness.effort import PUNCTUAL
from tests.harness.stopwatch import Change, Stopwatch, allowed, once_within, waited_for_processor
from tests.harness.worlds.process import AgentProcess

SPIN = "import os; os.sched_setaffinity(0, {0}); print(flush=True)\nwhile True: pass"


def test_a_stopwatch_runs_while_its_process_sleeps() -> None:
    began, watch = time.monotonic(), Stopwatch([os.getpid()])
    time.sleep(0.3)

    ran = watch.seconds
    assert 0.3 - watch.stood <= ran <= time.monotonic() - began


def test_a_stopwatch_stands_still_while_others_have_the_processor() -> None:
    """Two that want one processor without end have half of it each, if nobody else wants it."""
    commands = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in commands:
            assert process.stdout is not None
            process.stdout.readline()
        watch = Stopwatch([commands[0].pid])
        deadline = time.monotonic() + 60
        while watch.stood < 0.3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        for process in commands:
            process.kill()
            process.communicate()


def test_a_process_that_has_ended_has_not_waited() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()

    assert waited_for_processor([process.pid]) == 0.0


def test_a_promised_time_may_be_exceeded_only_while_others_use_the_processor() -> None:
    assert allowed(1.5) == (1.5 if PUNCTUAL else 30.0)


class Patient:
    """Waits for a condition as an AgentProcess does that runs."""

    def wait_until(self, condition: Callable[[], bool], what: str, *, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > ends:
                raise LabError(what)


def test_a_change_that_shows_late_or_never_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "PATIENCE_SECONDS", 0.0)
    change = Change(cast("AgentProcess", Patient()), [])
    change.shows(lambda: True, "what shows")
    with pytest.raises(AssertionError, match="what is late took"):
        change.shows(lambda: True, "what is late", within=0.0)
    with pytest.raises(LabError, match="what never comes"):
        change.shows(lambda: False, "what never comes", within=0.001)


def test_work_that_is_quick_once_is_quick_and_other_work_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = iter([3.0, 1.2, 0.1])
    once_within(0.2, lambda: next(attempts), "a refusal")
    assert list(attempts) == []
    monkeypatch.setattr(stopwatch, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(AssertionError, match=r"never less than 0.2, at best 1.00 in"):
        once_within(0.2, lambda: 1.0, "a refusal")


def test_work_may_have_few_tries() -> None:
    attempts = iter([1.0, 1.0, 1.0, 0.1])
    with pytest.raises(AssertionError, match=r"in 3 attempts"):
        once_within(0.2, lambda: next(attempts), "a refusal", tries=3)
    once_within(0.2, lambda: next(attempts), "a refusal", tries=1)

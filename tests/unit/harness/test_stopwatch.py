"""A stopwatch counts what something takes, not what others take of the processor meanwhile."""

import os
import subprocess
import sys
import time

from tests.harness.stopwatch import Stopwatch, waited_for_processor

SPIN = "import os; os.sched_setaffinity(0, {0}); print(flush=True)\nwhile True: pass"


def test_it_runs_while_its_process_sleeps() -> None:
    began, watch = time.monotonic(), Stopwatch([os.getpid()])
    time.sleep(0.3)

    assert 0.3 - watch.stood <= watch.seconds <= time.monotonic() - began


def test_it_stands_still_while_others_have_the_processor() -> None:
    """Two that want one processor without end have half of it each, if nobody else wants it."""
    commands = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        for process in commands:
            assert process.stdout is not None
            process.stdout.readline()
        watch = Stopwatch([commands[0].pid])
        deadline = time.monotonic() + 30
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

"""Agents that start, end and clean up at the same moment do not take each other's sockets."""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from nodeagent.proxy.observe.admin import place
from nodeagent.proxy.observe.admin.place import is_answered, listen_at, remove_own, sweep

LOOKS_OF_A_SWEEP = 2
"""At a socket that nobody answers: without the lock, and with it."""
OVERLAP_SECONDS = 0.3
"""For how long the first waits, after it has looked, for the second to look as well."""


def listen(path: Path) -> socket.socket:
    return listen_at(path, mode=0o660, group=None)


def left_behind(path: Path) -> Path:
    """A socket whose agent was killed."""
    listen(path).close()
    return path


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is waited for until it is free, on a busy machine too."""
    monkeypatch.setattr(place, "LOCK_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_of_two_agents_that_start_together_one_gets_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = left_behind(tmp_path / "agent.sock")
    both = threading.Barrier(2)

    def look(asked: Path) -> bool:
        found = is_answered(asked)
        with suppress(threading.BrokenBarrierError):
            both.wait(OVERLAP_SECONDS)
        return found

    monkeypatch.setattr(place, "is_answered", look)
    with ThreadPoolExecutor() as pool:
        attempts = [pool.submit(listen, path) for _ in range(2)]
    failures = [attempt.exception() for attempt in attempts if attempt.exception() is not None]
    listeners = [attempt.result() for attempt in attempts if attempt.exception() is None]
    try:
        assert [type(failure) for failure in failures] == [FileExistsError]
        assert is_answered(path)
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.usefixtures("patient")
def test_the_socket_of_an_agent_that_starts_again_is_not_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent starts right after the last look before its old socket is removed."""
    path = left_behind(tmp_path / "agent-4026531840.sock")
    looks, started = list[bool](), list[socket.socket]()

    def look(asked: Path) -> bool:
        looks.append(is_answered(asked))
        if len(looks) == LOOKS_OF_A_SWEEP:
            threading.Thread(target=lambda: started.append(listen(path))).start()
            time.sleep(OVERLAP_SECONDS)
        return looks[-1]

    monkeypatch.setattr(place, "is_answered", look)
    sweep(tmp_path / "agent.sock")
    wait_for(lambda: started)
    assert is_answered(path)
    started[0].close()


def test_an_agent_that_ends_keeps_the_socket_of_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    old = listen(path)
    inode = path.stat().st_ino
    old.close()
    with listen(path):
        remove_own(path, inode)
        assert is_answered(path)


def test_somebody_who_holds_the_lock_delays_an_agent_and_does_not_stop_it(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with held(tmp_path), listen(path):
        assert is_answered(path)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def wait_for(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)

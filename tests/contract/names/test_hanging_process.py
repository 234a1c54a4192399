"""A DNS process that lives and answers nothing, and one that only could not answer."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.lab.net.network_namespaces import is_alive
from nodeagent.names.feed import heartbeat, spawn
from nodeagent.names.feed.feed_messages import Settings
from tests.contract.names.test_process import DEADLINE_SECONDS, Node, run, until
from tests.harness.dns import hanging_server

ADDRESS = "10.96.0.1"
HELD_UP_SECONDS = 3.0


def stop(node: Node) -> None:
    os.kill(node.supervisor.pid, signal.SIGSTOP)


def ask_for(name: str) -> Callable[[Node], None]:
    """A query that makes `hanging_server` hang."""

    def send(node: Node) -> None:
        asyncio.get_running_loop().create_task(node.ask(name, timeout_s=0.1), name="query that is never answered")

    return send


@pytest.mark.parametrize(
    "hang",
    [
        pytest.param(stop, id="stopped by a signal"),
        pytest.param(ask_for("loop.example.com."), id="in an endless loop"),
        pytest.param(ask_for("lock.example.com."), id="waiting for itself"),
        pytest.param(ask_for("deaf.example.com."), id="its loop runs, and nobody reads the sockets"),
    ],
)
def test_a_process_that_answers_nothing_is_replaced(
    tmp_path: Path, hang: Callable[[Node], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "MODULE", hanging_server.__name__)
    monkeypatch.setenv("PYTHONPATH", str(Path(hanging_server.__file__).parents[3]))

    async def scene(node: Node) -> None:
        await node.until_said(ADDRESS)
        pid: int = node.supervisor.pid
        hang(node)
        await asyncio.sleep(0.05)
        waiting = asyncio.create_task(node.ask(timeout_s=DEADLINE_SECONDS))
        begun = time.monotonic()
        await until(lambda: node.supervisor.pid not in (0, pid))
        print(f"replaced after {time.monotonic() - begun:.2f} s")
        assert await waiting == ADDRESS, "what waited in the socket is answered by the next process"
        print(f"answered after {time.monotonic() - begun:.2f} s")
        assert node.supervisor.killed == 1
        assert "ProcessHung" in {one.reason for one in node.all_problems}
        assert (False, pid) in node.answering, "queries went elsewhere in between"
        assert not is_alive(pid)

    run(scene, tmp_path)


def test_queries_go_elsewhere_while_a_process_gets_no_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped here, and the kernel is made to say that it waits for a processor."""
    monkeypatch.setattr(heartbeat, "seconds_waited", lambda _: time.monotonic())

    async def scene(node: Node) -> None:
        await node.until_said(ADDRESS)
        pid = node.supervisor.pid
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: node.answering[-1] == (False, pid))
        os.kill(pid, signal.SIGCONT)
        await until(lambda: node.answering[-1] == (True, pid))
        assert await node.ask() == ADDRESS
        assert (node.supervisor.pid, node.supervisor.killed) == (pid, 0)

    run(scene, tmp_path)


def test_a_process_is_left_alone_while_the_agent_is_held_up(tmp_path: Path) -> None:
    """The agent's loop is blocked, as in a suspended or a busy machine. The control is above: there the agent can run."""

    async def scene(node: Node) -> None:
        await node.until_said(ADDRESS)
        pid = node.supervisor.pid
        for _ in range(2):
            time.sleep(HELD_UP_SECONDS)  # noqa: ASYNC251  # this is what it is about
            await asyncio.sleep(2 * heartbeat.INTERVAL_SECONDS)
        assert await node.ask() == ADDRESS
        assert (node.supervisor.pid, node.supervisor.killed) == (pid, 0)

    run(scene, tmp_path)


def test_a_process_is_left_alone_while_it_is_given_a_long_state(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said(ADDRESS)
        pid = node.supervisor.pid
        for number in range(20_000):
            node.objects.put(f"s{number}", f"10.97.{number >> 8}.{number & 255}")
        node.feeder.passed(None)
        await node.until_said("10.97.78.31", "s19999.shop.svc.cluster.local.")
        assert (node.supervisor.pid, node.supervisor.killed) == (pid, 0)

    run(scene, tmp_path)


def test_a_stopped_process_of_a_former_agent_is_replaced_by_the_next(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said(ADDRESS)
        stopped = node.supervisor.pid
        await node.stop()
        os.kill(stopped, signal.SIGSTOP)
        node.start()
        await node.until_said(ADDRESS)
        assert node.supervisor.pid not in (0, stopped)

    run(scene, tmp_path)


def test_another_version_replaces_a_stopped_process(tmp_path: Path) -> None:
    async def scene(node: Node) -> None:
        await node.until_said(ADDRESS)
        stopped = node.supervisor.pid
        await node.stop()
        os.kill(stopped, signal.SIGSTOP)
        node.settings = Settings(version="2", zones=("cluster.local", "other.test"))
        node.start()
        await node.until_said(ADDRESS, "web.shop.svc.other.test.")

    run(scene, tmp_path)

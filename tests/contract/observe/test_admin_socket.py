"""The admin socket: over a real one, asked by the client that commands use."""

import asyncio
import logging
import os
import resource
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from click.shell_completion import ShellComplete

from nodeagent.cli.agent_check import agent_finding
from nodeagent.cli.exit_codes import Failure
from nodeagent.cli.main import main
from nodeagent.cli.node_reading import look_at_node
from nodeagent.cli.node_view import Access
from nodeagent.diagnosis.checks.finding import Result
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.proxy.observe.admin.admin_client import AgentClient, AgentHangs, NoAgent, find_agent
from nodeagent.proxy.observe.admin.admin_documents import (
    ClusterDns,
    KnownProblem,
    LogLevelDocument,
    Status,
    TableBelief,
    Transaction,
)
from nodeagent.proxy.observe.admin.admin_server import AdminServer
from nodeagent.proxy.observe.admin.place import listen_at, namespaced_path, network_namespace, sweep

T = TypeVar("T")
PATIENCE = 60.0


class View:
    """An agent with two Services."""

    def __init__(self, namespace: int | None = None, lines: int = 2) -> None:
        self.namespace = network_namespace() if namespace is None else namespace
        self.lines = lines

    def status(self) -> Status:
        return Status(
            node="node-a", version="1", pid=os.getpid(), network_namespace=self.namespace, source="manifests /m",
            families=("IPv4",), ownership="plain", ready=True, awaited="", services=2, problems=1,
            started="2026-01-01T00:00:00Z", passes=3, last_pass="",
        )  # fmt: skip

    def problems(self) -> tuple[KnownProblem, ...]:
        return (KnownProblem("2026-01-01T00:00:00Z", "Service default/web", "Broken", "why"),)

    def transactions(self) -> tuple[Transaction, ...]:
        return ()

    def belief(self) -> tuple[TableBelief, ...]:
        return (TableBelief("IPv4", known=True, elements={"frontends": 2}),)

    def names(self) -> list[str]:
        return ["default/web", "shop/api"]

    def nodes(self) -> list[str]:
        return ["node-a", "node-b"]

    def cluster_dns(self, pod: str | None) -> ClusterDns:
        return ClusterDns(enabled=True, zones=("cluster.local",), running=((pod, ("shop",)),) if pod else ())

    async def world(self, only: ObjectKey | None) -> AsyncIterator[bytes]:
        yield b"head\n"
        for number in range(self.lines if only is None else 1):
            yield f"{only or number}\n".encode()


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def served(path: Path, ask: Callable[[], T], *, view: View | None = None, group: int | None = None) -> T:
    """What `ask` returns while a server answers at `path` or beside it."""

    async def run() -> T:
        ready = asyncio.Event()

        def report(problems: Iterable[Problem]) -> None:
            assert not list(problems)
            ready.set()

        server = asyncio.create_task(AdminServer(path, view or View(), group=group, report=report).run())
        async with asyncio.timeout(PATIENCE):
            await ready.wait()
            found = await asyncio.to_thread(ask)
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
        return found

    return asyncio.run(run())


def test_everything_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "made" / "agent.sock"
    client = AgentClient(path)

    def ask() -> None:
        assert client.ask("status", Status) == View().status()
        assert client.ask("problems", tuple[KnownProblem, ...]) == View().problems()
        assert client.ask("transactions", tuple[Transaction, ...]) == ()
        assert client.ask("belief", tuple[TableBelief, ...]) == View().belief()
        assert client.ask("services", list[str]) == ["default/web", "shop/api"]
        assert list(client.lines("world")) == [b"head\n", b"0\n", b"1\n"]
        assert list(client.lines("world?service=shop/api")) == [b"head\n", b"shop/api\n"]
        assert client.ask("cluster-dns", ClusterDns) == View().cluster_dns(None)
        assert client.ask("cluster-dns?pod=fd00%3A%3A5", ClusterDns) == View().cluster_dns("fd00::5")
        with pytest.raises(NoAgent, match="there is: /v1/belief"):
            client.ask("secrets", str)

    served(path, ask)
    assert list(path.parent.iterdir()) == [], "the socket goes with the agent"


def test_a_silent_agent_is_distinguished_from_a_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeagent.proxy.observe.admin.admin_client.TIMEOUT_SECONDS", 0.1)
    path = tmp_path / "agent.sock"
    with pytest.raises(NoAgent, match="no agent answers at") as missing:
        find_agent(path, path)
    assert not isinstance(missing.value, AgentHangs)
    assert agent_finding(path).result is Result.NOTE
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        with pytest.raises(AgentHangs, match=r"exists, but has not answered for 0.1 s: it hangs"):
            find_agent(path, path)
        with pytest.raises(AgentHangs):
            find_agent(None, path)
        found = agent_finding(path)
        assert (found.result, "systemctl restart nodeagent" in found.cure) == (Result.FAILED, True)
        with pytest.raises(Failure, match=r"it hangs: restart it, or give --manifests"):
            look_at_node(Access(socket=path))
    assert "one that died left" in agent_finding(path).detail


_SILENT = "import socket, sys, time; s = socket.socket(1); s.bind(sys.argv[1]); s.listen(); print('.', flush=True); time.sleep(99)"


@pytest.mark.kernel
@pytest.mark.parametrize("elsewhere", [True, False], ids=["another namespace", "this one"])
def test_an_agent_that_hangs_in_another_namespace_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    monkeypatch.setattr("nodeagent.proxy.observe.admin.admin_client.TIMEOUT_SECONDS", 0.1)
    path = tmp_path / "agent.sock"
    within = ["unshare", "--net"] if elsewhere else []
    with subprocess.Popen([*within, sys.executable, "-c", _SILENT, str(path)], stdout=subprocess.PIPE) as silent:
        assert silent.stdout is not None
        silent.stdout.readline()
        with pytest.raises(NoAgent) as reported:
            find_agent(None, path)
        silent.kill()
    assert isinstance(reported.value, AgentHangs) != elsewhere
    assert ("in another network namespace" in str(reported.value)) == elsewhere


def test_a_long_answer_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    lines = served(path, lambda: list(AgentClient(path).lines("world")), view=View(lines=20_000))
    assert len(lines) == 20_001
    assert lines[-1] == b"19999\n"


def test_owner_and_group_may_connect_and_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    group = os.getgid()
    found = served(path, lambda: path.stat(), group=group)
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert found.st_gid == group


def test_the_log_level_is_changed_at_run_time(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    client = AgentClient(path)

    def ask() -> tuple[str, int]:
        client.set_log_level("debug")
        with pytest.raises(NoAgent, match="level must be one of debug, info, warning, error"):
            client.set_log_level("loud")
        return client.ask("log-level", LogLevelDocument).level, logging.getLogger().level

    assert served(path, ask) == ("debug", logging.DEBUG)


def test_the_socket_of_a_dead_agent_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    listen_at(path, mode=0o660, group=None).close()
    assert path.is_socket()
    assert served(path, lambda: AgentClient(path).ask("services", list[str]))


def test_a_second_agent_listens_beside_the_first_and_is_found_there(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"

    def ask_both() -> list[Path]:
        elsewhere = View(namespace=1)
        return served(path, lambda: [find_agent(None, path)[0].path, find_agent(path, path)[0].path], view=elsewhere)

    def ask_second() -> list[Path]:
        return served(path, lambda: [find_agent(None, path)[0].path, find_agent(path, path)[0].path])

    with pytest.raises(NoAgent, match="in another network namespace"):
        ask_both()
    assert served(path, ask_second, view=View(namespace=1)) == [namespaced_path(path), path]


def test_a_socket_path_that_cannot_be_used_is_reported_and_retried(tmp_path: Path) -> None:
    path = tmp_path / "file" / "agent.sock"
    path.parent.write_text("in the way")
    reported: list[tuple[Problem, ...]] = []

    async def run() -> list[str]:
        listening = asyncio.Event()

        def report(problems: Iterable[Problem]) -> None:
            reported.append(tuple(problems))
            if len(reported) == 1:
                path.parent.unlink()
            if not reported[-1]:
                listening.set()

        server = asyncio.create_task(AdminServer(path, View(), group=None, report=report, retry_seconds=0.01).run())
        async with asyncio.timeout(PATIENCE):
            await listening.wait()
            names = await asyncio.to_thread(AgentClient(path).ask, "services", list[str])
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
        return names

    assert asyncio.run(run()) == ["default/web", "shop/api"]
    (problem,) = reported[0]
    assert problem.subject == "admin socket"
    assert f"cannot listen at {path}" in problem.detail


def test_no_agent_and_a_foreign_server_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with pytest.raises(NoAgent, match=r"no agent answers at .*: No such file"):
        AgentClient(path).ask("status", Status)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(path))
        stranger.listen()

        async def ask() -> None:
            loop = asyncio.get_running_loop()
            asking = asyncio.create_task(asyncio.to_thread(AgentClient(path).ask, "status", Status))
            caller, _ = await asyncio.to_thread(stranger.accept)
            caller.setblocking(False)
            await loop.sock_sendall(caller, b"SSH-2.0\r\n")
            caller.close()
            with pytest.raises(NoAgent, match=r"no agent|what answers is not an agent"):
                await asking

        asyncio.run(ask())


def test_a_missing_group_is_a_problem_that_names_it(tmp_path: Path) -> None:
    async def run() -> list[Problem]:
        reported: asyncio.Queue[list[Problem]] = asyncio.Queue()
        server = AdminServer(
            tmp_path / "agent.sock",
            View(),
            group=None,
            missing_group="no-such-group",
            report=lambda problems: reported.put_nowait(list(problems)),
        )
        running = asyncio.create_task(server.run())
        async with asyncio.timeout(PATIENCE):
            found = await reported.get()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return found

    (problem,) = asyncio.run(run())
    assert problem.reason == "NoSuchGroup"
    assert "reporting.socketGroup is no-such-group" in problem.detail
    assert "groupadd --system no-such-group" in problem.detail


def test_files_of_killed_agents_are_removed_and_those_of_live_ones_stay(tmp_path: Path) -> None:
    def left_behind(name: str) -> Path:
        listener = listen_at(tmp_path / name, mode=0o660, group=None)
        listener.close()
        return tmp_path / name

    dead = left_behind("agent-4026531840.sock")
    others = [left_behind("agent-of-mine.sock"), left_behind("other-1.sock")]
    alive = tmp_path / "agent-4026531841.sock"
    listener = listen_at(alive, mode=0o660, group=None)
    own = tmp_path / "agent.sock"

    def ask() -> None:
        deadline = time.monotonic() + PATIENCE
        while dead.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    served(own, ask)
    listener.close()
    assert sorted(tmp_path.iterdir()) == sorted([*others, alive])


@pytest.mark.parametrize(
    ("words", "begun", "completed"),
    [
        (["explain"], "sh", ["shop/api"]),
        (["explain"], "we", ["web"]),
        (["explain", "--node-name"], "node-", ["node-a", "node-b"]),
        (["diff", "--node-name"], "node-b", ["node-b"]),
        (["explain", "--node-name"], "other", []),
    ],
)
def test_the_shell_completes_services_and_nodes_that_the_agent_knows(
    tmp_path: Path, words: list[str], begun: str, completed: list[str]
) -> None:
    path = tmp_path / "agent.sock"

    def ask(*, at: Path) -> list[str]:
        shell = ShellComplete(main, {}, "nodeagent", "_NODEAGENT_COMPLETE")
        command, *options = words
        found = shell.get_completions([command, "--socket", str(at), *options], begun)
        return [one.value for one in found]

    assert served(path, lambda: ask(at=path)) == completed
    assert ask(at=tmp_path / "nobody.sock") == []


def test_a_file_whose_owner_is_unknown_is_kept(tmp_path: Path) -> None:
    left = namespaced_path(tmp_path / "agent.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert sweep(tmp_path / "agent.sock") == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sweep(tmp_path / "agent.sock") == [left]

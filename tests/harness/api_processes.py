"""API servers in processes of their own, that can be killed, frozen and started again."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeagent.cli.exit_codes import FAILED
from nodeagent.lab.net.namespace_process import Running
from nodeagent.proxy.source.client.kubeconfig import load_kubeconfig
from tests.harness.history.records import Fault
from tests.harness.warm_start import AGENT, WarmLauncher

_PROGRAM = "from nodeagent.cli.apiserver import apiserver_command; apiserver_command()"


class Process:
    """An API server without TLS; at another port each time it is started, unless it is given one.

    It is forked where there is a launcher; without one it is an interpreter of its own, which runs `planted` first.
    """

    def __init__(
        self,
        place: Path,
        name: str,
        *options: str,
        port: int = 0,
        planted: str = "",
        launcher: WarmLauncher | None = None,
    ) -> None:
        self.name = name
        self.incarnation = -1
        self._kubeconfig = place / f"kubeconfig-{name}"
        self._log = place / f"{name}.log"
        self._launcher = launcher
        self._command = [sys.executable, "-c", f"{planted}\n{_PROGRAM}"]
        self._listen = f"127.0.0.1:{port}"
        self._options = ["--insecure", "--kubeconfig-out", str(self._kubeconfig), *options]
        self._process: Running | None = None
        self.start()

    @property
    def url(self) -> str | None:
        return load_kubeconfig(self._kubeconfig).server if self._kubeconfig.exists() else None

    def start(self) -> None:
        options = ["--listen", self._listen, *self._options]
        with self._log.open("ab") as log:
            if self._launcher is not None:
                self._process = self._launcher.start("", [*AGENT, "apiserver", *options], os.environ, log.fileno())
            else:
                self._process = subprocess.Popen([*self._command, *options], stderr=log)
        self.incarnation += 1

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        self._process.send_signal(number)

    def kill(self) -> None:
        self._kubeconfig.unlink(missing_ok=True)
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Ends it in order, and waits for that."""
        self.send(signal.SIGTERM)
        assert self._process is not None
        self._process.wait(60)
        self._kubeconfig.unlink(missing_ok=True)

    def start_again(self) -> None:
        """Where it has ended by itself, with what says that it was left behind."""
        if self._process is not None and self._process.poll() == FAILED:
            self._kubeconfig.unlink(missing_ok=True)
            self.start()

    async def is_frozen(self, chance: random.Random) -> Fault:
        """It stands still for longer than others wait for it."""
        begun = asyncio.get_running_loop().time()
        self.send(signal.SIGSTOP)
        await asyncio.sleep(1 + 3 * chance.random())
        self.send(signal.SIGCONT)
        return Fault(f"{self.name} frozen", begun, asyncio.get_running_loop().time())

    async def is_killed(self, chance: random.Random) -> Fault:
        """Killed, and started again after a moment."""
        begun = asyncio.get_running_loop().time()
        self.kill()
        await asyncio.sleep(0.3 * chance.random())
        self.start()
        async with asyncio.timeout(60):
            while self.url is None:  # noqa: ASYNC110  # a file has no event
                await asyncio.sleep(0.02)
        return Fault(f"{self.name} killed", begun, asyncio.get_running_loop().time())


@contextmanager
def running(
    place: Path, count: int, *options: str, planted: str = "", launcher: WarmLauncher | None = None
) -> Iterator[list[Process]]:
    servers: list[Process] = []
    try:
        for n in range(count):
            servers.append(Process(place, f"server-{n}", *options, planted=planted, launcher=launcher))
        yield servers
    finally:
        for server in servers:
            server.kill()


async def keep_running(servers: Sequence[Process]) -> None:
    """One that ended because it was left behind is started again, as systemd does."""
    while True:
        for server in servers:
            server.start_again()
        await asyncio.sleep(0.1)

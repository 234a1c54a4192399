"""The one process of a lab, as root: `python -m nodeagent.lab.supervisor`, started by `lab up`.

It builds the lab, prints its steps (one JSON line each, on standard output, until the lab is up), keeps it, answers on
a socket, and takes it down on SIGTERM, SIGINT or on request. The process that started it may end once the lab is up; if
it ends before that, the lab is taken down.

All blocking work happens in one worker thread, in order. It starts the programs, so they end with it
(PR_SET_PDEATHSIG).
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.forward import Forwarder
from nodeagent.lab.lab_plan import API_PORT, CONTROL, SERVICE, Settings, api_address
from nodeagent.lab.lab_thread import Worker
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.member import ACTOR
from nodeagent.lab.net.network_namespaces import LabError, inside
from nodeagent.lab.net.warm_launcher import COMMANDS, modules_of
from nodeagent.lab.page.page_server import PageServer
from nodeagent.lab.patience import Interrupted
from nodeagent.lab.supervisor_messages import Done, Refused, Reply, Request, TakeDown
from nodeagent.lab.supervisor_replies import Replies

RENEW_EVERY = 5.0
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

T = TypeVar("T")


class Supervisor:
    """One lab. `run` returns when it was removed."""

    def __init__(self, directory: LabDirectory, settings: Settings, fork_server: ForkServer) -> None:
        self._directory = directory
        self._settings = settings
        self._started = time.monotonic()
        self._work = Worker()
        self._stop = asyncio.Event()
        self._cluster = LiveCluster(settings, directory, self._say, fork_server)
        self._requests: set[asyncio.Task[None]] = set()
        self._replies = Replies(self._cluster, self._work, directory)
        self._waiting_for_the_end: list[asyncio.StreamWriter] = []

    async def run(self) -> None:
        """Builds and keeps the lab. Raises LabError if it cannot be built; nothing is left then, either."""
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self.stop)
        try:
            async with AsyncExitStack() as stack:
                try:
                    await self._build(stack)
                    await self._keep(stack)
                finally:
                    await self._work(self._cluster.withdraw)
        finally:
            await self._work(self._cluster.close)
            self._directory.remove()
            for writer in self._waiting_for_the_end:
                await _send(writer, Done())
            self._work.close()

    def stop(self) -> None:
        """Takes the lab down."""
        self._cluster.patience.interrupted.set()
        self._stop.set()

    def _say(self, text: str, *, up: bool = False) -> None:
        """Reports to the process that started the lab. If that has ended, the lab is taken down."""
        try:
            line = {"at": time.monotonic() - self._started, "text": text, "up": up}
            os.write(sys.stdout.fileno(), msgspec.json.encode(line) + b"\n")
        except BrokenPipeError:
            self._cluster.patience.interrupted.set()

    async def _build(self, stack: AsyncExitStack) -> None:
        cluster = self._cluster
        if self._settings.embedded:
            await self._step(cluster.build_world)
            await self._step(cluster.start_control_plane)
        else:
            outer = await self._step(cluster.outer_access)
            await self._step(lambda: cluster.await_outer(outer))
            await self._step(cluster.build_world)
            listener = await self._step(self._listen_inside)
            await stack.enter_async_context(
                Forwarder(listener, lambda: socket.create_connection(outer.place, timeout=5.0))
            )
            await self._step(lambda: cluster.write_inner_kubeconfig(outer))
        await self._step(cluster.start_agents)
        await self._step(cluster.open_api)
        self._say(f"{self._api_servers()} answers")
        await self._step(cluster.register)
        self._say(f"registered: nodes {', '.join(cluster.nodes)}, {len(cluster.pods)} pods, Service default/{SERVICE}")
        outward = socket.create_server(("127.0.0.1", 0))
        await stack.enter_async_context(Forwarder(outward, cluster.connect_to_api))
        await self._step(lambda: cluster.write_outer_kubeconfig(outward.getsockname()[1]))
        await self._step(cluster.wait_until_programmed)
        self._say("every endpoint is programmed on every node")
        if self._settings.dns:
            await self._step(cluster.wait_until_names_are_answered)
            self._say(f"names are answered on every node, at {', '.join(self._settings.dns_addresses)}")

    async def _keep(self, stack: AsyncExitStack) -> None:
        """Answers requests, and keeps the lab alive, until it is taken down."""
        server = await asyncio.start_unix_server(self._accept, str(self._directory.socket))
        stack.callback(server.close)
        if self._settings.page:
            page = await stack.enter_async_context(PageServer(self._cluster, self._work))
            await self._step(lambda: self._directory.write_page(page.address))
        self._say("", up=True)
        if self._cluster.patience.interrupted.is_set():
            return
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(self._renew_leases())
            await self._stop.wait()
            server.close()
            await self._end_requests()
            renewing.cancel()

    async def _step(self, function: Callable[[], T]) -> T:
        if self._cluster.patience.interrupted.is_set():
            raise Interrupted("interrupted")
        return await self._work(function)

    def _api_servers(self) -> str:
        if not self._settings.embedded:
            return self._settings.api
        return "each API server" if self._settings.several else "the API server"

    def _listen_inside(self) -> socket.socket:
        namespace = self._cluster.world.namespace(CONTROL)
        return inside(namespace, lambda: socket.create_server((api_address(), API_PORT)))

    async def _renew_leases(self) -> None:
        """Renews the Lease of each node. Retries until the API server answers."""
        while True:
            await asyncio.sleep(RENEW_EVERY)
            with suppress(LabError):
                await self._work(self._cluster.renew_leases)

    # -- requests -----------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stop.is_set():
            writer.close()  # the present requests are being cancelled, a new one would not be
            return
        task = asyncio.current_task()
        assert task is not None, "a connection is a task"
        self._requests.add(task)
        closing = False
        try:
            request = msgspec.json.decode(await reader.readline(), type=Request)
            if isinstance(request, TakeDown):
                self._waiting_for_the_end.append(writer)
                closing = True
                self.stop()
                return
            await self._answer(request, reader, writer)
        except (ValueError, msgspec.MsgspecError) as error:
            await _send(writer, Refused(str(error), unusable=True))
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client disconnected, or the lab is taken down
        finally:
            self._requests.discard(task)
            if not closing:
                writer.close()

    async def _end_requests(self) -> None:
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    async def _answer(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Sends the replies until there are no more, or until the client disconnects."""
        async with asyncio.TaskGroup() as group:
            answering = group.create_task(self._send_answers(request, writer))
            disconnected = group.create_task(_until_disconnected(reader))
            await asyncio.wait({answering, disconnected}, return_when=asyncio.FIRST_COMPLETED)
            answering.cancel()
            disconnected.cancel()

    async def _send_answers(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Sends all replies, or the reason why the request failed."""
        try:
            async with aclosing(self._replies.to(request)) as replies:
                async for reply in replies:
                    await _send(writer, reply)
        except ValueError as error:
            await _send(writer, Refused(str(error), unusable=True))
        except (LabError, OSError) as error:
            await _send(writer, Refused(str(error)))


async def _until_disconnected(reader: asyncio.StreamReader) -> None:
    """Waits until the client disconnects."""
    with suppress(ConnectionError):
        while await reader.read(4096):
            pass


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    """Sends one reply; does nothing if the client has disconnected."""
    with suppress(ConnectionError):
        writer.write(msgspec.json.encode(reply) + b"\n")
        await writer.drain()


def main(base: str, settings: str) -> int:
    """Returns the exit status: 0 taken down, 1 it could not be built (one line on standard error says why)."""
    wanted = msgspec.json.decode(settings, type=Settings)
    directory = LabDirectory(Path(base), wanted.name)
    fork_server = ForkServer(ACTOR, *modules_of(*COMMANDS))
    try:
        directory.hold()
        asyncio.run(Supervisor(directory, wanted, fork_server).run())
    except (LabError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    finally:
        fork_server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

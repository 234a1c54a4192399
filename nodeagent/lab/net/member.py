"""A host as its user sees it: its addresses, and what can be done from there."""

import itertools
import socket
import subprocess
from abc import ABC, abstractmethod
from typing import Self, TypeVar

import msgspec

from nodeagent.lab.net import actor_messages as messages
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.survey import Survey
from nodeagent.lab.net.topology import first_of
from nodeagent.model.addresses import Family, Protocol

ACTOR = "nodeagent.lab.net.actor"
"""The module that a fork server must have imported for members."""
PATIENCE = 10.0
"""Default timeout of one connection in seconds: a busy machine answers late, and a fast answer ends the wait."""
REPLY_DEADLINE = 120.0
END_DEADLINE = 5.0

R = TypeVar("R", bound=messages.Reply)


class ActorChannel:
    """Starts a namespace's actor and exchanges messages with it, one request at a time. Only one thread may use it."""

    def __init__(self, namespace: str, fork_server: ForkServer, program: str) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = fork_server.fork(f"{program}:act", [namespace], [theirs.fileno()])
        self._socket.settimeout(REPLY_DEADLINE)
        self._lines = self._socket.makefile("rb")
        self._numbers = itertools.count(1)

    def request(self, request: messages.Request, expect: type[R]) -> R:
        """Returns the reply. Raises LabError if the actor failed, died or took longer than two minutes."""
        number = next(self._numbers)
        try:
            self._socket.sendall(msgspec.json.encode(messages.NumberedRequest(number, request)) + b"\n")
            while line := self._lines.readline():
                numbered = msgspec.json.decode(line, type=messages.NumberedReply)
                if numbered.number == number:
                    return self._expected(numbered.reply, request, expect)
        except OSError as error:
            raise LabError(f"no reply to {request}: {error}") from error
        raise LabError(f"the actor died during {request}")

    @staticmethod
    def _expected(reply: messages.Reply, request: messages.Request, expect: type[R]) -> R:
        if isinstance(reply, expect):
            return reply
        reason = reply.reason if isinstance(reply, messages.Failed) else f"unexpected {reply}"
        raise LabError(f"{request}: {reason}")

    @property
    def pid(self) -> int:
        """The actor's pid."""
        return self._process.pid

    def close(self) -> None:
        """Asks the actor to end; `wait` for it."""
        self._lines.close()
        self._socket.close()

    def wait(self) -> None:
        """Waits until the actor has ended; kills it after five seconds."""
        try:
            self._process.wait(END_DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RunningTask(ABC):
    """Something an actor does in the background; leaving the context stops it. It can be stopped once."""

    def __init__(self, channel: ActorChannel, started: messages.Started) -> None:
        self._channel = channel
        self._number = started.task
        self._running = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._running:
            self.stop()

    @abstractmethod
    def stop(self) -> object:
        """Ends it; returns its report."""

    def _end(self, expect: type[R]) -> R:
        self._running = False
        return self._channel.request(messages.Stop(self._number), expect)


class Serving(RunningTask):
    """A running server."""

    def stop(self) -> None:
        """Closes its sockets and open connections."""
        self._end(messages.Stopped)


class Holding(RunningTask):
    """Open connections. `opened`: the first answer of each, with failures."""

    def __init__(self, channel: ActorChannel, started: messages.Started) -> None:
        super().__init__(channel, started)
        self.opened = Survey(started.answers)

    def ask(self) -> Survey:
        """Sends a question on every connection that answered when it was opened. Returns the answers."""
        return Survey(self._channel.request(messages.Exchange(self._number), messages.Answers).answers)

    def stop(self) -> None:
        """Closes them."""
        self._end(messages.Stopped)


class Loading(RunningTask):
    """New connections without end."""

    def report(self) -> messages.LoadReport:
        """Returns what has happened so far."""
        return self._channel.request(messages.Look(self._number), messages.LoadReport)

    def stop(self) -> messages.LoadReport:
        """Ends it. Returns what has happened."""
        return self._end(messages.LoadReport)


class Member:
    """One host of a world. Methods that connect return what happened; they raise LabError only if the lab itself fails."""

    def __init__(
        self, name: str, namespace: str, addresses: tuple[str, ...], fork_server: ForkServer, program: str = ACTOR
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.addresses = addresses
        self._channel = ActorChannel(namespace, fork_server, program)

    def __repr__(self) -> str:
        return f"Member({self.name!r}, {self.addresses})"

    @property
    def actor(self) -> int:
        """The pid of the member's actor."""
        return self._channel.pid

    def address(self, family: Family = Family.IPV4) -> str:
        """Returns its first address of the family. Raises LabError if it has none."""
        found = first_of(family, self.addresses)
        if found is None:
            raise LabError(f"{self.name} has no {family.value} address")
        return found

    def serve(
        self,
        port: int,
        protocol: Protocol = Protocol.TCP,
        *,
        addresses: tuple[str, ...] | None = None,
        name: str | None = None,
    ) -> Serving:
        """Answers on `port` of its own addresses (or the given ones, also ``0.0.0.0`` and ``::``), with its name."""
        serve = messages.Serve(name or self.name, protocol, port, self.addresses if addresses is None else addresses)
        return Serving(self._channel, self._channel.request(serve, messages.Started))

    def ask(
        self,
        address: str,
        port: int,
        protocol: Protocol = Protocol.TCP,
        *,
        count: int = 1,
        workers: int = 1,
        timeout: float = PATIENCE,
        source_address: str | None = None,
        source_port: int = 0,
        mark: int | None = None,
        priority: int | None = None,
    ) -> Survey:
        """Makes `count` connections of one question each, `workers` at a time. For the rest see actor_messages.Dial."""
        dial = messages.Dial(protocol, address, port, timeout, source_address, source_port, mark, priority)
        return Survey(self._channel.request(messages.Ask(dial, count, workers), messages.Answers).answers)

    def hold(
        self,
        address: str,
        port: int,
        protocol: Protocol = Protocol.TCP,
        *,
        count: int = 1,
        timeout: float = PATIENCE,
        source_address: str | None = None,
        source_port: int = 0,
    ) -> Holding:
        """Opens `count` connections that stay open; with UDP, sockets that keep their source ports."""
        dial = messages.Dial(protocol, address, port, timeout, source_address, source_port)
        return Holding(self._channel, self._channel.request(messages.Hold(dial, count), messages.Started))

    def load(
        self,
        address: str,
        port: int,
        protocol: Protocol = Protocol.TCP,
        *,
        interval: float = 0.01,
        workers: int = 1,
        timeout: float = PATIENCE,
        delay: float = 0.0,
        record: bool = False,
    ) -> Loading:
        """Makes connections until stopped: each worker one every `interval` seconds, the first after `delay` seconds."""
        load = messages.Load(messages.Dial(protocol, address, port, timeout), interval, workers, delay, record)
        return Loading(self._channel, self._channel.request(load, messages.Started))

    def ping(self, address: str, *, count: int = 1, timeout: float = PATIENCE) -> Survey:
        """Sends ICMP echo requests; an answer's `local` is the address that replied."""
        return Survey(self._channel.request(messages.Ping(address, count, timeout), messages.Answers).answers)

    def close(self) -> None:
        """Asks the actor to end; `wait` for it."""
        self._channel.close()

    def wait(self) -> None:
        """Waits until the actor has ended."""
        self._channel.wait()

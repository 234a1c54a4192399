"""The process in a namespace, forked by a `ForkServer`.

Reads requests from the socket DESCRIPTOR and answers them in threads, which it keeps. When its creator closes the socket or
dies, it ends all other processes in the namespace, removes the namespace's name and exits; no other cleanup is needed.
"""

import itertools
import os
import resource
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec

from nodeagent.lab.net import actor_messages as messages
from nodeagent.lab.net.dial import Dialer, ask_many
from nodeagent.lab.net.echo_servers import Server
from nodeagent.lab.net.network_namespaces import LabError, enter, remove_namespace
from nodeagent.lab.net.ping import ping
from nodeagent.lab.net.strays import end_processes_beside_us
from nodeagent.lab.net.tasks import HoldTask, LoadTask, ServeTask, Task

MOST_AT_ONCE = 64
"""Requests that are carried out; others wait. A member sends one at a time."""


class Actor:
    """Carries out requests; tasks run until they are stopped."""

    dialer: type[Dialer] = Dialer
    server: type[Server] = Server

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._tasks: dict[int, Task] = {}
        self._numbers = itertools.count(1)
        self._dialer = self.dialer()
        self._sending = threading.Lock()
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE)

    def run(self) -> None:
        """Answers until the other end is closed."""
        with self._channel.makefile("rb") as lines:
            for line in lines:
                self._threads.submit(self._answer, msgspec.json.decode(line, type=messages.NumberedRequest))

    def _answer(self, numbered: messages.NumberedRequest) -> None:
        try:
            reply = self.carry_out(numbered.request)
        except Exception as error:  # noqa: BLE001 - every failure is reported to the caller
            reply = messages.Failed(f"{type(error).__name__}: {error}")
        data = msgspec.json.encode(messages.NumberedReply(numbered.number, reply)) + b"\n"
        with self._sending:
            self._channel.sendall(data)

    def carry_out(self, request: messages.Request) -> messages.Reply:  # noqa: PLR0911 - one return per request
        """Returns the reply. Raises OSError, and KeyError for an unknown task."""
        match request:
            case messages.Ask(dial, count, workers):
                return messages.Answers(tuple(ask_many(dial, count, workers, self._dialer)))
            case messages.Ping(address, count, timeout):
                return messages.Answers(tuple(ping(address, count, timeout)))
            case messages.Exchange(number) | messages.Look(number):
                match self._tasks[number]:
                    case HoldTask() as held:
                        return held.exchange()
                    case ServeTask():
                        return messages.Failed(f"task {number} is a server: nothing to report")
                    case observing:
                        return observing.report()
            case messages.Stop(number):
                return self._tasks.pop(number).stop()
            case messages.Hold(dial, count):
                conversations = HoldTask(dial, count, self._dialer)
                return self._start(conversations, tuple(conversations.first))
            case messages.Serve():
                return self._start(ServeTask(self.server(request)))
            case messages.Load():
                return self._start(LoadTask(request, self._dialer))

    def _start(self, task: Task, answers: tuple[messages.Answer, ...] = ()) -> messages.Started:
        number = next(self._numbers)
        self._tasks[number] = task
        return messages.Started(number, answers)


def act(namespace: str, descriptor: int, actor: type[Actor] = Actor) -> None:
    """Runs the actor in the namespace until the socket is closed; then exits the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    channel = socket.socket(fileno=descriptor)
    try:
        enter(namespace)
    except LabError:
        pass  # the world was removed before its actor started
    else:
        try:
            actor(channel).run()
        finally:
            end_processes_beside_us()  # a DNS process outlives its agent
    finally:
        remove_namespace(namespace)
        os._exit(0)

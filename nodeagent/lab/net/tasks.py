"""Background tasks of an actor, until they are stopped: servers, held conversations, load."""

import threading
import time
from collections import Counter

from msgspec.structs import replace

from nodeagent.lab.net import actor_messages as messages
from nodeagent.lab.net.dial import Conversation, Dialer, ask, begin, continue_asking
from nodeagent.lab.net.echo_servers import Server
from nodeagent.lab.net.latencies import to_two_digits

KEPT_FAILURES = 100


class ServeTask:
    """Runs a server until it is stopped."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def stop(self) -> messages.Stopped:
        self._server.stop()
        return messages.Stopped()


class HoldTask:
    """Opens conversations, and keeps them open until it is stopped."""

    def __init__(self, dial: messages.Dial, count: int, dialer: Dialer) -> None:
        self._timeout = dial.timeout
        self._conversations: list[Conversation] = []
        self.first: list[messages.Answer] = []
        for _ in range(count):
            conversation, answer = begin(dial, dialer)
            self.first.append(answer)
            if conversation:
                self._conversations.append(conversation)

    def exchange(self) -> messages.Answers:
        return messages.Answers(tuple(continue_asking(c, self._timeout) for c in self._conversations))

    def stop(self) -> messages.Stopped:
        for conversation in self._conversations:
            conversation.close()
        return messages.Stopped()


class LoadTask:
    """Begins new conversations until it is stopped, and counts them. It does not catch up on late ones, so the pace stays the same.

    Workers take turns, so that connections are evenly spaced and continue while some wait for their answers.
    """

    def __init__(self, load: messages.Load, dialer: Dialer) -> None:
        self._load = load
        self._dialer = dialer
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._names: Counter[str] = Counter()
        self._failures: Counter[messages.Failure] = Counter()
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._failed: list[messages.Answer] = []
        self._slowest = 0.0
        self._latencies: Counter[int] = Counter()
        self._last_failure = 0.0
        self._open: dict[int, float] = {}
        self._records: list[messages.Record] = []
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(load.workers)]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int) -> None:
        self._stopping.wait(self._load.delay + number * self._load.interval / self._load.workers)
        while not self._stopping.is_set():
            with self._lock:
                began = self._open[number] = time.monotonic()
            answer = ask(self._load.dial, self._dialer)
            with self._lock:
                del self._open[number]
                self._count(answer)
            self._stopping.wait(max(0.0, began + self._load.interval - time.monotonic()))

    def _count(self, answer: messages.Answer) -> None:
        if self._load.record:
            self._records.append(messages.Record(answer.started, answer.seconds, answer.name, answer.failure))
        if answer.failure:
            self._failures[answer.failure] += 1
            self._last_failure = max(self._last_failure, answer.started)
            if len(self._failed) < KEPT_FAILURES:
                self._failed.append(answer)
            return
        self._names[answer.name] += 1
        self._first.setdefault(answer.name, answer.started)
        self._last[answer.name] = max(answer.started, self._last.get(answer.name, 0.0))
        self._slowest = max(self._slowest, answer.seconds)
        self._latencies[to_two_digits(answer.seconds)] += 1

    def report(self) -> messages.LoadReport:
        with self._lock:
            return messages.LoadReport(
                dict(self._names),
                dict(self._failures),
                dict(self._first),
                dict(self._last),
                tuple(self._failed),
                self._slowest,
                dict(self._latencies),
                self._last_failure,
                min(self._open.values(), default=time.monotonic()),
            )

    def stop(self) -> messages.LoadReport:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        return replace(self.report(), records=tuple(self._records))


Task = ServeTask | HoldTask | LoadTask

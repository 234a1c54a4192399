"""All reports of the agent: the log, the status line, health servers, events."""

import asyncio
import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from nodeagent.model.names import ObjectKey
from nodeagent.proxy.observe.event_documents import CONTROLLER, node_regarding, starting
from nodeagent.proxy.observe.event_sender import EventPost, EventRecorder, ProblemEvents
from nodeagent.proxy.observe.health_answers import HealthAnswers
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.proxy.observe.pass_log import PassLog
from nodeagent.proxy.observe.pass_observers import PassListener, PassObservers, StatusReader
from nodeagent.proxy.observe.problem_board import ProblemBoard
from nodeagent.proxy.observe.service_health import ServiceHealth
from nodeagent.proxy.observe.status_line import StatusLine
from nodeagent.runtime.serving.http import Answer, HttpServer


class Reporting:
    """Create and use it inside one event loop.

    board: all present problems. health_answers: the answers of the health server. reader: shows the status line. ready: called with
    that line after the first pass that programmed a family. healthz: address and port of the health server, None for
    none. hard_fail: raise BindFailed if that is in use. listeners: further listeners to every pass; later: those after `ready`.
    """

    def __init__(
        self,
        node_name: str,
        board: ProblemBoard,
        health: HealthMonitor,
        health_answers: HealthAnswers,
        reader: StatusReader,
        *,
        ready: Callable[[str], None],
        healthz: tuple[str, int] | None,
        hard_fail: bool,
        listeners: Iterable[PassListener] = (),
        later: Iterable[PassListener] = (),
    ) -> None:
        loop = asyncio.get_running_loop()
        self._node_name = node_name
        self._board = board
        self._recorder: EventRecorder | None = None
        self._metrics: HttpServer | None = None
        self._pass_log = PassLog(loop.call_later)
        self._answers = health_answers
        self._healthz = None if healthz is None else self._health_server(*healthz, hard_fail=hard_fail)
        self.service_health = ServiceHealth(is_healthy=health.is_healthy, report=board.reporter("service health"))
        all_listeners: tuple[PassListener, ...] = (self._pass_log, health, self.service_health, *listeners)
        self.observers = PassObservers(all_listeners, board, StatusLine(node_name), reader, ready=ready, later=later)
        board.add(self.observers)

    def publish_events(self, post: EventPost, uid_of: Callable[[str, ObjectKey], str | None]) -> None:
        """Makes events of problems from now on; `run` sends them. uid_of: see `ProblemEvents`."""
        self._recorder = EventRecorder(
            post,
            instance=f"{CONTROLLER}-{self._node_name}",
            clock=asyncio.get_running_loop().time,
            wall=_utc_now,
            suffixes=lambda: secrets.token_hex(8),
        )
        self._board.add(ProblemEvents(self._recorder.record, node=node_regarding(self._node_name), uid_of=uid_of))

    async def run(self) -> None:
        """Answers, and sends events, until cancelled. Raises BindFailed with `hard_fail`."""
        async with asyncio.TaskGroup() as tasks:
            if self._recorder is not None:
                self._recorder.record(starting(node_regarding(self._node_name)))
                tasks.create_task(self._recorder.run(), name="events")
            if self._healthz is not None:
                tasks.create_task(self._healthz.run(), name="healthz server")
            tasks.create_task(self.service_health.run(), name="service health")
            if self._metrics is not None:
                tasks.create_task(self._metrics.run(), name="metrics server")

    def serve_metrics(self, place: tuple[str, int], answer: Answer, *, hard_fail: bool) -> None:
        """Makes `run` answer at this address and port, too."""
        self._metrics = HttpServer(
            *place,
            answer,
            name="metrics server",
            failure="FailedToStartMetricsServer",
            report=self._board.reporter("metrics server"),
            hard_fail=hard_fail,
        )

    def flush(self) -> None:
        """Writes what the log has not written yet."""
        self._pass_log.flush()

    def _health_server(self, host: str, port: int, *, hard_fail: bool) -> HttpServer:
        return HttpServer(
            host,
            port,
            self._answers.answer,
            name="healthz server",
            failure="FailedToStartProxierHealthcheck",
            report=self._board.reporter("healthz server"),
            hard_fail=hard_fail,
        )


def _utc_now() -> datetime:
    return datetime.now(UTC)

"""Answers /healthz and /livez from the state of health."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime

from nodeagent.proxy.observe.health import health_response
from nodeagent.proxy.observe.health_monitor import HealthMonitor
from nodeagent.runtime.serving.responses import NOT_FOUND, Request, Response


class HealthAnswers:
    """Answers requests for health.

    clock: the monitor's. wall: the time of day. node_eligible: called at every request. counts: how often each path was answered
    with each status; unknown paths count as one.
    """

    def __init__(
        self,
        monitor: HealthMonitor,
        *,
        clock: Callable[[], float],
        wall: Callable[[], datetime],
        node_eligible: Callable[[], bool],
    ) -> None:
        self._monitor = monitor
        self._clock = clock
        self._wall = wall
        self._node_eligible = node_eligible
        self.counts: Counter[tuple[str, int]] = Counter()

    def answer(self, request: Request) -> Response:
        response = health_response(
            request.path,
            self._monitor.state,
            node_eligible=self._node_eligible(),
            now=self._clock(),
            timeout=self._monitor.timeout_seconds,
            wall=self._wall(),
        )
        self.counts[request.path if response.status != NOT_FOUND.status else "", response.status] += 1
        return response

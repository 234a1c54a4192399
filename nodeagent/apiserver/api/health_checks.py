"""/livez, /readyz and /healthz in kube-apiserver's form, and counts of their results."""

from collections.abc import Collection, Iterator
from typing import Final, Protocol

from nodeagent.apiserver.api.authorization import Role, User
from nodeagent.apiserver.api.replies import Reply, text_reply
from nodeagent.runtime.figures.instruments import Instrument, counter, gauge

ENDPOINTS: Final = ("livez", "readyz", "healthz")
_LIVENESS: Final = ("ping",)
CHECKS: Final = ("ping", "store", "store-space", "etcd")
_SEE_REASONS: Final = (Role.ADMIN, Role.READER)


class Health(Protocol):
    """The state of the server."""

    def failing(self) -> list[str]:
        """Returns the names of the checks that fail; empty if all pass."""
        ...

    def why(self, check: str) -> str:
        """Returns why a check fails; empty if that is not known."""
        ...


class HealthChecks:
    """Answers the three endpoints and counts the results of each check."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._results = counter("kubernetes_healthchecks_total", "Results of checks", "name", "type", "status")

    def instruments(self) -> Iterator[Instrument]:
        """Yields the metrics of `/metrics/slis`, with the names of k8s.io/component-base/metrics/prometheus/slis."""
        yield self._results
        failing = self._health.failing()
        yield gauge(
            "kubernetes_healthcheck",
            "1 for a check that passes, 0 for one that fails",
            "name",
            "type",
            values={
                (name, endpoint): float(name not in failing)
                for endpoint in ENDPOINTS
                for name in (_LIVENESS if endpoint == "livez" else CHECKS)
            },
        )

    def answer(self, endpoint: str, user: User, *, verbose: bool, excluded: Collection[str] = ()) -> Reply:
        """Returns the reply of an endpoint for all checks except `excluded`; with one line for each if `verbose` or if one
        fails. Only administrators and readers see the reasons."""
        failing = self._failing(endpoint)
        names = [*(_LIVENESS if endpoint == "livez" else CHECKS)]
        names += [name for name in failing if name not in names]
        lines = [self._line(endpoint, name, user, failing, excluded) for name in names]
        unknown = ",".join(f'"{name}"' for name in sorted(set(excluded) - set(names)))
        if unknown:
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
        if set(failing) - set(excluded):
            return text_reply("\n".join([*lines, f"{endpoint} check failed\n"]), 500)
        return text_reply("\n".join([*lines, f"{endpoint} check passed\n"]) if verbose else "ok")

    def single(self, endpoint: str, name: str) -> Reply:
        """Returns the reply for one check, as at /readyz/NAME."""
        fails = name in self._failing(endpoint)
        self._count(endpoint, name, fails=fails)
        return text_reply("internal server error: not ready\n", 500) if fails else text_reply("ok")

    def _failing(self, endpoint: str) -> list[str]:
        return self._health.failing() if endpoint != "livez" else []

    def _line(self, endpoint: str, name: str, user: User, failing: Collection[str], excluded: Collection[str]) -> str:
        if name in excluded:
            return f"[+]{name} excluded: ok"
        self._count(endpoint, name, fails=name in failing)
        if name not in failing:
            return f"[+]{name} ok"
        why = self._health.why(name) if user.role in _SEE_REASONS else ""
        return f"[-]{name} failed: {why or 'reason withheld'}"

    def _count(self, endpoint: str, name: str, *, fails: bool) -> None:
        self._results.add(name, endpoint, "error" if fails else "success")

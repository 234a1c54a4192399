"""Decides whether the agent is healthy, from when changes came, when they were programmed, and the Node object.

The rules are kube-proxy's (pkg/proxy/healthcheck/proxy_health.go), with two cases it leaves open decided in
docs/decisions/0030-health-listeners.md. Each family is judged separately:

- healthy until a pass has tried to program it: before, the kernel still holds what the agent's predecessor wrote;
- healthy while no change waits, however long ago the last pass was: idle is healthy;
- unhealthy once the oldest change that no successful pass has taken in waits for the timeout or longer. A pass that
  fails counts as a waiting change, even if no object changed.

Times are seconds of a clock that only goes forward; the caller passes the present time. Pure.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from nodeagent.model.addresses import Family
from nodeagent.runtime.serving.responses import JSON_HEADERS, NOT_FOUND, Response

HEALTHZ = "/healthz"
LIVEZ = "/livez"

_NEVER = "0001-01-01T00:00:00Z"  # Go's zero time, which kube-proxy shows for "not yet"


@dataclass(frozen=True, slots=True)
class FamilyHealth:
    """The progress of one family's passes.

    updated: when a pass last succeeded. waiting_since: when the oldest change came that no pass has applied yet; None: no change
    waits. Both are None until a pass has tried.
    """

    updated: float | None = None
    waiting_since: float | None = None

    def is_late(self, now: float, timeout: float) -> bool:
        """Returns whether a change waits for `timeout` seconds or longer."""
        return self.waiting_since is not None and now - self.waiting_since >= timeout


@dataclass(frozen=True, slots=True)
class HealthState:
    """The progress of each family. Its methods return the next state."""

    families: dict[Family, FamilyHealth]

    @classmethod
    def before_any_pass(cls, families: Iterable[Family]) -> "HealthState":
        """Returns the state at the start: no pass has tried, no change waits."""
        return cls(dict.fromkeys(families, FamilyHealth()))

    def changed(self, at: float) -> "HealthState":
        """Returns the state after a change of an object: it waits for every family, unless an older change does already."""
        waiting = {
            family: replace(known, waiting_since=at)
            for family, known in self.families.items()
            if known.updated is not None and known.waiting_since is None
        }
        return HealthState({**self.families, **waiting}) if waiting else self

    def passed(self, succeeded: Mapping[Family, bool], *, started: float, finished: float) -> "HealthState":
        """Returns the state after a pass that took in all changes of this state."""
        after = {}
        for family, success in succeeded.items():
            known = self.families.get(family, FamilyHealth())
            if success:
                after[family] = FamilyHealth(updated=finished)
            elif known.waiting_since is None:
                after[family] = replace(known, waiting_since=started)
        return HealthState({**self.families, **after})

    @property
    def waiting_since(self) -> float | None:
        """The time of the oldest change that some family has not taken in; None: no change waits."""
        return min((at for family in self.families.values() if (at := family.waiting_since) is not None), default=None)

    def is_healthy(self, now: float, timeout: float) -> bool:
        """Returns whether no family is late."""
        return not any(family.is_late(now, timeout) for family in self.families.values())


def health_response(
    path: str, state: HealthState, *, node_eligible: bool, now: float, timeout: float, wall: datetime
) -> Response:
    """Returns the answer of /healthz (which counts the node) and /livez (which does not); 404 for any other path.

    wall: the time of day at `now`. `lastUpdated` is `wall` in a good answer: older kube-proxies ran all the time, and
    a reader who compares it with the time of day wants to see that the agent is alive. `healthy` never counts the node.
    """
    if path not in {HEALTHZ, LIVEZ}:
        return NOT_FOUND
    healthy = state.is_healthy(now, timeout)
    good = healthy and (node_eligible or path == LIVEZ)

    def text(at: float | None) -> str:
        return _NEVER if at is None else go_time(wall - timedelta(seconds=now - at))

    tried = {family: known for family, known in state.families.items() if known != FamilyHealth()}
    latest = max((known.updated for known in tried.values() if known.updated is not None), default=None)
    document: dict[str, object] = {
        "lastUpdated": go_time(wall) if good else text(latest),
        "currentTime": go_time(wall),
    }
    if path == HEALTHZ:
        document["nodeEligible"] = node_eligible
    document["healthy"] = healthy
    if tried:
        document["status"] = {
            family.value: {"lastUpdated": text(known.updated), "healthy": not known.is_late(now, timeout)}
            for family, known in sorted(tried.items(), key=lambda item: item[0].value)
        }
    return Response(200 if good else 503, JSON_HEADERS, json.dumps(document, separators=(",", ":")).encode())


def go_time(moment: datetime) -> str:
    """Formats a time as Go does: RFC 3339 in UTC, with no more digits of a second than needed."""
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return f"{text.rstrip('0').rstrip('.')}Z"

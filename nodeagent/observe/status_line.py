"""What is served, in one line for people: counts that follow the passes."""

from collections.abc import Mapping
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import Backend, ServiceState
from nodeagent.model.names import ObjectKey


class FamilyResult(Protocol):
    """One family's part of a pass."""

    @property
    def error(self) -> str | None: ...


class Pass(Protocol):
    """What of a pass the line tells."""

    @property
    def changed(self) -> Mapping[ObjectKey, ServiceState | None]: ...
    @property
    def services(self) -> int: ...
    @property
    def families(self) -> Mapping[Family, FamilyResult]: ...


class StatusLine:
    """`3 services, 12 endpoints on node-a (IPv4, IPv6); 1 problem`. Endpoints: addresses and ports of each service."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._endpoints: dict[ObjectKey, int] = {}
        self._total = 0
        self._parts = [f"nothing programmed on {node_name} yet"]

    def passed(self, report: Pass, problems: int) -> str:
        """The line after this pass; every pass must be told. problems: how many there are, from whatever part."""
        for key, state in report.changed.items():
            now = 0 if state is None else len(_endpoints(state))
            self._total += now - self._endpoints.pop(key, 0)
            if now:
                self._endpoints[key] = now
        works = [family.value for family, result in report.families.items() if result.error is None]
        fails = [family.value for family, result in report.families.items() if result.error is not None]
        served = f"{_count(report.services, 'service')}, {_count(self._total, 'endpoint')}"
        parts = [f"{served} on {self._node_name} ({', '.join(works) or 'nothing programmed'})"]
        if fails:
            parts.append(f"programming {', '.join(fails)} fails, retrying")
        self._parts = parts
        return self.counted(problems)

    def counted(self, problems: int) -> str:
        """The line as of the last pass, with so many problems."""
        return "; ".join((*self._parts, _count(problems, "problem")) if problems else self._parts)


def _endpoints(state: ServiceState) -> set[Backend]:
    found: set[Backend] = set()
    for frontend in state.frontends:
        found.update(frontend.route.backends)
        if frontend.short_circuit is not None:
            found.update(frontend.short_circuit.backends)
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"

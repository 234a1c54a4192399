"""The present state in one line for users: counts that follow the passes."""

from nodeagent.model.frontend import Backend, Route, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.reports import PassReport
from nodeagent.model.text import counted


class StatusLine:
    """`3 services, 12 endpoints on node-a (IPv4, IPv6); 1 problem`. Endpoints: addresses and ports of each service."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name
        self._endpoints: dict[ObjectKey, int] = {}
        self._total = 0
        self._parts = [f"nothing programmed on {node_name} yet"]

    def after_pass(self, report: PassReport, problems: int) -> str:
        """Returns the line after this pass; must be called for every pass. problems: the number of all problems."""
        for key, state in report.changed.items():
            now, before = 0 if state is None else _endpoints(state), self._endpoints.get(key, 0)
            self._total += now - before
            if now:
                self._endpoints[key] = now
            elif before:
                del self._endpoints[key]
        works = [family.value for family in report.families if family in report.programmed]
        fails = [family.value for family in report.families if family not in report.programmed]
        served = f"{counted(report.services, 'service')}, {counted(self._total, 'endpoint')}"
        parts = [f"{served} on {self._node_name} ({', '.join(works) or 'nothing programmed'})"]
        if fails:
            parts.append(f"programming {', '.join(fails)} fails, retrying")
        self._parts = parts
        return self.counted(problems)

    def counted(self, problems: int) -> str:
        """Returns the line as of the last pass, with this number of problems."""
        return "; ".join((*self._parts, counted(problems, "problem")) if problems else self._parts)


def _endpoints(state: ServiceState) -> int:
    """Counts distinct endpoints; the frontends of a port have the same route."""
    if len(state.frontends) == 1 and state.frontends[0].short_circuit is None:
        return len(state.frontends[0].route.backends)
    routes: dict[int, Route] = {}
    for frontend in state.frontends:
        for route in (frontend.route, frontend.short_circuit):
            if route is not None and route.backends:
                routes[id(route)] = route
    if len(routes) == 1:
        return sum(len(route.backends) for route in routes.values())
    found: set[Backend] = set()
    return len(found.union(*(route.backends for route in routes.values())))

"""Prints an explanation as lines for a terminal: the verdict, then the path from the object to the kernel."""

from collections.abc import Iterator
from itertools import islice

from nodeagent.diagnosis.explain.endpoint_reasons import Account
from nodeagent.diagnosis.explain.kernel import KernelFrontend, KernelService, TableState
from nodeagent.diagnosis.explain.service import Explanation
from nodeagent.model.addresses import endpoint_text
from nodeagent.model.text import printable

_SHOWN = 50
"""How many endpoints are listed at most without -o wide."""


def lines_of(one: Explanation, origin: str, *, wide: bool = False) -> Iterator[str]:
    """Yields all lines. origin: the source of the answer. wide: list every endpoint."""
    for line in _lines(one, origin, wide=wide):
        yield printable(line)


def _lines(one: Explanation, origin: str, *, wide: bool) -> Iterator[str]:
    yield one.verdict
    yield from (f"  also {finding}" for finding in one.findings[1:])
    yield f"from: {origin}"
    if not one.spec:
        return
    yield f"Service {one.service}"
    yield from (f"  {name}: {_text(value)}" for name, value in one.spec.items())
    yield f"EndpointSlices: {len(one.slices) or 'none'}"
    for found in one.slices:
        yield f"  {found.name} {found.family}: {found.endpoints} endpoints at {', '.join(found.ports) or 'no port'}"
    yield f"endpoints: {len(one.endpoints) or 'none'}"
    shown = one.endpoints if wide else one.endpoints[:_SHOWN]
    yield from (f"  {_endpoint(account)}" for account in shown)
    if len(shown) < len(one.endpoints):
        yield f"  … and {len(one.endpoints) - len(shown)} more (-o wide has them)"
    yield f"addresses: {len(one.addresses) or 'none'}"
    for address in one.addresses:
        parts = [f"{address.kind} {address.place} ({address.policy}): {address.endpoints} endpoints"]
        if not address.endpoints:
            parts.append(f"connections: {address.without}")
        if address.affinity_seconds is not None:
            parts.append(f"a client keeps its endpoint for {address.affinity_seconds} s")
        if address.sources is not None:
            parts.append(f"only from {', '.join(address.sources) or 'nowhere'}")
        yield f"  {', '.join(parts)}"
    for kernel in one.kernel or ():
        yield from _kernel(kernel)
    if one.kernel is None:
        yield "kernel: not read"
    for probe in one.probes:
        yield f"probe: {probe.endpoint} {probe.answer.value}{f' ({probe.detail})' if probe.detail else ''}"
    yield from (f"problem: {problem}" for problem in one.problems)


def _backends(one: KernelFrontend) -> Iterator[str]:
    if one.picked is None:
        return iter(one.backends)
    return (f"{place} ({times} times)" for place, times in zip(one.backends, one.picked, strict=False))


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _endpoint(one: Account) -> str:
    place = one.address if one.port is None else endpoint_text(one.address, one.port)
    mark = "partly" if one.partly else "used" if one.used else "not used"
    where = f" on {one.node}" if one.node else ""
    port = f" for port {one.service_port}" if one.service_port else ""
    text = f"{mark:8} {place}{where}{port}: {one.reason.value}"
    if one.partly and one.local is not None:
        text += f"; for external addresses of policy Local: {one.local.value}"
    return text + (f" ({one.detail})" if one.detail else "")


def _kernel(found: KernelService) -> Iterator[str]:
    if found.table is not TableState.RIGHT and not found.frontends:
        yield f"kernel {found.family}: the table is {found.table.value}"
        return
    yield f"kernel {found.family}: {len(found.frontends) or 'no'} addresses, the table is {found.table.value}"
    for one in found.frontends:
        whom = "" if one.scope == "all" else f" for {one.scope}"
        counted = "" if one.connections is None else f", {one.connections} connections"
        to = f" -> {', '.join(islice(_backends(one), _SHOWN))}" if one.backends else ""
        yield f"  {one.kind} {one.place}{whom}: {one.action}{to}{counted}"
    yield from (f"  {line}" for line in found.deviations)
    yield from (f"  affinity: {count} clients stay at {place}" for place, count in found.affinity.items())
    yield from (f"  tracked: {count} connections to {place}" for place, count in found.flows.items())

"""Frontends, their backends and counters, from a read-back of our table (pure).

Only the kernel is asked. Names come from the comments of the frontend elements.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodeagent.model.addresses import Family, Protocol, unpack_address
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.image.image import class_of
from nodeagent.proxy.dataplane.image.render import image_of_services, programmed_slots, route_class, slot_keys
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.classes import DISCARD, REFUSE, PickClass, pick_class


@dataclass(frozen=True, slots=True)
class ProgrammedFrontend:
    """One frontend as the kernel has it.

    kind: `ClusterIP`, `External` (externalIPs and load-balancer addresses) or `NodePort`. address: text, or `*`.
    scope: its clients: `all`, or `pods and node` for the second list of an externalTrafficPolicy=Local frontend.
    action: `pick` among `backends` (address, port), `refuse` or `drop`. connections: counted so far; None
    without counters. picked: how often each of `backends` was picked; None without counters of endpoints.
    """

    family: Family
    service: str
    kind: str
    address: str
    protocol: str
    port: int
    scope: str
    action: str
    sticky_seconds: int | None
    backends: tuple[tuple[str, int], ...]
    connections: int | None
    picked: tuple[int, ...] | None = None


def programmed_frontends(contents: Contents, family: Family, only: str | None = None) -> Iterator[ProgrammedFrontend]:
    """Yields the frontends of one family's table by service name, then address. only: those of one Service (`namespace/name`)."""
    image = contents.image if only is None else image_of_services(contents.image, (only,))
    found: list[ProgrammedFrontend] = []
    for frontends, scoped, node_port in (
        (schema.FRONTENDS, False, False),
        (schema.FRONTENDS_CLUSTER_SCOPE, True, False),
        (schema.NODEPORTS, False, True),
        (schema.NODEPORTS_CLUSTER_SCOPE, True, True),
    ):
        found += (_frontend(contents, family, key, scoped=scoped, node_port=node_port) for key in image[frontends])
    yield from sorted(found, key=lambda one: (one.service, one.kind, one.address, one.protocol, one.port, one.scope))


def _frontend(contents: Contents, family: Family, key: bytes, *, scoped: bool, node_port: bool) -> ProgrammedFrontend:
    image = contents.image
    value = route_class(image, key, node_port=node_port, cluster_scope=scoped)
    number = 0 if value is None else class_of(value)
    counted = schema.NODEPORTS if node_port else schema.FRONTENDS
    named = image[counted].get(key, b"")
    timeouts = schema.NODEPORT_STICKY_TIMEOUTS if node_port else schema.STICKY_TIMEOUTS
    picked = pick_class(number)
    sticky = picked is not None and picked.sticky and key in image[timeouts]
    counter = None if scoped else contents.counters.get(counted, {}).get(key)
    address = key[:-8] if not node_port else b""
    return ProgrammedFrontend(
        family=family,
        service=printable(named[4:].decode(errors="replace")) or "?",
        kind=_kind(image, address),
        address=unpack_address(address) if address else "*",
        protocol=_protocol(key[-8]),
        port=int.from_bytes(key[-4:-2], "big"),
        scope="pods and node" if scoped else "all",
        action={REFUSE: "refuse", DISCARD: "drop"}.get(number, "pick"),
        sticky_seconds=class_of(image[timeouts][key]) if sticky else None,
        backends=tuple(
            (unpack_address(value[:-4]), int.from_bytes(value[-4:-2], "big"))
            for value in programmed_slots(image, key, node_port=node_port, cluster_scope=scoped)
        ),
        connections=None if counter is None else counter[0],
        picked=None if picked is None else _picked(contents, key, picked, node_port=node_port),
    )


def _picked(contents: Contents, key: bytes, picked: PickClass, *, node_port: bool) -> tuple[int, ...] | None:
    """Returns how often the endpoint of each slot was picked; None without counters."""
    counters = contents.counters.get(schema.NODEPORT_BACKENDS if node_port else schema.BACKENDS)
    if counters is None:
        return None
    return tuple(counters[key + slot][0] for slot in slot_keys(picked) if key + slot in counters)


def _kind(image: dict[str, dict[bytes, bytes]], address: bytes) -> str:
    if not address:
        return "NodePort"
    return "ClusterIP" if address in image[schema.CLUSTER_IPS] else "External"


def _protocol(number: int) -> str:
    try:
        return Protocol(number).name
    except ValueError:
        return str(number)

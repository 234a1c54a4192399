"""Reads what the kernel counts: connections to each frontend, clients it has learned. Blocking; for a worker thread.

Uses a socket of its own: a dump of 10,000 elements must not keep a pass from the socket that writes.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Protocol

from nodeagent.model.addresses import Family
from nodeagent.model.reports import EndpointCounts, FrontendCounts, KernelCounts, MapFill
from nodeagent.proxy.dataplane.driver.kernel_table import present_specs
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset, typed_errors
from nodeagent.proxy.dataplane.errors import DumpInterrupted, KernelBusy
from nodeagent.proxy.dataplane.image.carried_counts import COUNTED_ENDPOINTS, COUNTED_FRONTENDS, SLOT_LENGTH
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables.element_reading import read_counts
from nodeagent.wire.netlink.nf_tables.ruleset_objects import named_set, read_set
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETSET, NFT_MSG_GETSETELEM

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02


class CountingTable(Protocol):
    """The dataplane of one family, as far as counts need it."""

    @property
    def family(self) -> Family: ...

    @property
    def uncounted(self) -> Mapping[str, Mapping[bytes, int]]:
        """Connections to add to what the kernel has counted, by map and key."""
        ...


def read_kernel_counts(tables: Iterable[CountingTable]) -> KernelCounts:
    """Reads the counters of all families that have a table. Raises DumpInterrupted, KernelUnclear and NotPermitted."""
    with closing(Ruleset()) as socket:
        return _read(socket, tables)


def _read(socket: Ruleset, tables: Iterable[CountingTable]) -> KernelCounts:
    frontends: list[FrontendCounts] = []
    endpoints: list[EndpointCounts] = []
    learned: list[MapFill] = []
    for table in tables:
        family = table.family
        specs = present_specs(socket, family)
        for name, backends in zip(COUNTED_FRONTENDS, COUNTED_ENDPOINTS, strict=True):
            if not (specs[name].counter or specs[backends].counter):
                continue
            by_key = _add_uncounted(_connections(socket, family, specs[name]), table.uncounted.get(name, {}))
            if specs[name].counter:
                frontends.append(FrontendCounts(family, name == schema.NODEPORTS, by_key))
            if specs[backends].counter:
                picked = _add_uncounted(
                    _connections(socket, family, specs[backends]), table.uncounted.get(backends, {})
                )
                endpoints.append(EndpointCounts(family, _by_endpoint(by_key, picked)))
        learned += _learned(socket, family)
    return KernelCounts(tuple(frontends), tuple(learned), tuple(endpoints))


def _add_uncounted(
    counted: dict[bytes, tuple[int, bytes]], uncounted: Mapping[bytes, int]
) -> dict[bytes, tuple[int, bytes]]:
    for key, missed in dict(uncounted).items():
        if key in counted:
            counted[key] = counted[key][0] + missed, counted[key][1]
    return counted


def _by_endpoint(
    frontends: Mapping[bytes, tuple[int, bytes]], picked: Mapping[bytes, tuple[int, bytes]]
) -> dict[tuple[bytes, bytes], int]:
    """Returns the connections of each service port and endpoint. The name of the port is in the frontend's element, which is read a
    moment earlier: endpoints whose frontend is missing were added meanwhile."""
    found: dict[tuple[bytes, bytes], int] = {}
    for key, (times, endpoint) in picked.items():
        frontend = frontends.get(key[:-SLOT_LENGTH])
        if frontend is not None:
            about = frontend[1], endpoint
            found[about] = found.get(about, 0) + times
    return found


def _connections(socket: Ruleset, family: Family, spec: SetSpec) -> dict[bytes, tuple[int, bytes]]:
    """Returns the connections of one map by key; 0 if it has no counters. Repeats a dump during which the map grew."""
    form, name = spec.form(family), spec.name
    where = named_set(schema.TABLE, name)
    for _ in range(_ATTEMPTS):
        counts: dict[bytes, tuple[int, bytes]] = {}
        elements = 0
        try:
            with typed_errors():
                header = read_set(socket.get(NFT_MSG_GETSET, nfproto(family), where))
            for data in socket.dump(NFT_MSG_GETSETELEM, nfproto(family), where):
                with typed_errors():
                    found = read_counts(form, data)
                elements += len(found)
                counts.update(found)
        except FileNotFoundError:
            return {}
        except KernelBusy:
            elements = -1
        if elements == len(counts) and header.count in {None, elements}:
            return counts
        time.sleep(_PAUSE_SECONDS)
    raise DumpInterrupted(f"map {name}: no consistent dump in {_ATTEMPTS} attempts")


def _learned(socket: Ruleset, family: Family) -> Iterator[MapFill]:
    """Yields the number of learned clients; nothing on kernels that do not report how many elements a set has."""
    try:
        with typed_errors():
            where = named_set(schema.TABLE, schema.AFFINITY)
            header = read_set(socket.get(NFT_MSG_GETSET, nfproto(family), where))
    except FileNotFoundError:
        return
    if header.count is not None:
        yield MapFill(family, schema.AFFINITY, header.count, schema.AFFINITY_SIZE)

"""What the kernel counts by itself: connections to each frontend, clients it has learned. Blocking; for a worker thread.

Read over a socket of its own: a dump of 10,000 elements must not keep a pass from the one that writes.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Protocol

from nodeagent.dataplane.errors import DumpInterrupted
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.carried_counts import COUNTED
from nodeagent.dataplane.nft.ruleset import Ruleset, typed
from nodeagent.model.addresses import Family
from nodeagent.model.reports import FrontendCounts, KernelCounts, MapFill
from nodeagent.netlink.netfilter import nfproto
from nodeagent.netlink.nf_tables.elements import read_counts
from nodeagent.netlink.nf_tables.objects import named_set, read_set
from nodeagent.netlink.uapi.nf_tables import NFT_MSG_GETSET, NFT_MSG_GETSETELEM

_ATTEMPTS = 5
_PAUSE_SECONDS = 0.02
_SPECS = {spec.name: spec for spec in schema.set_specs(counters=True)}


class CountingTable(Protocol):
    """The dataplane of one family."""

    @property
    def family(self) -> Family: ...

    @property
    def uncounted(self) -> Mapping[str, Mapping[bytes, int]]:
        """Connections to add to what the kernel has counted, by map and key."""
        ...


def read_kernel_counts(tables: Iterable[CountingTable]) -> KernelCounts:
    """Of all families that have a table. Raises DumpInterrupted, KernelUnclear and NotPermitted."""
    with closing(Ruleset()) as socket:
        return _read(socket, tables)


def _read(socket: Ruleset, tables: Iterable[CountingTable]) -> KernelCounts:
    frontends: list[FrontendCounts] = []
    learned: list[MapFill] = []
    for table in tables:
        family = table.family
        for name in COUNTED:
            by_key = _connections(socket, family, name)
            for key, missed in dict(table.uncounted[name]).items():
                if key in by_key:
                    by_key[key] = by_key[key][0] + missed, by_key[key][1]
            frontends.append(FrontendCounts(family, name == schema.NODEPORTS, by_key))
        learned += _learned(socket, family)
    return KernelCounts(tuple(frontends), tuple(learned))


def _connections(socket: Ruleset, family: Family, name: str) -> dict[bytes, tuple[int, bytes]]:
    """Of one map; none where nothing is counted. A dump into which a growing of the map fell is repeated."""
    form = _SPECS[name].form(family)
    where = named_set(schema.TABLE, name)
    for _ in range(_ATTEMPTS):
        counts: dict[bytes, tuple[int, bytes]] = {}
        elements = 0
        try:
            with typed():
                header = read_set(socket.get(NFT_MSG_GETSET, nfproto(family), where))
            if not header.counter:
                return {}
            for data in socket.dump(NFT_MSG_GETSETELEM, nfproto(family), where):
                with typed():
                    found = read_counts(form, data)
                elements += len(found)
                counts.update(found)
        except FileNotFoundError:
            return {}
        except DumpInterrupted:
            elements = -1
        if elements == len(counts) and header.count in {None, elements}:
            return counts
        time.sleep(_PAUSE_SECONDS)
    raise DumpInterrupted(f"map {name}: no consistent dump in {_ATTEMPTS} attempts")


def _learned(socket: Ruleset, family: Family) -> Iterator[MapFill]:
    """Nothing on kernels that do not tell how many elements a set has."""
    try:
        with typed():
            where = named_set(schema.TABLE, schema.AFFINITY)
            header = read_set(socket.get(NFT_MSG_GETSET, nfproto(family), where))
    except FileNotFoundError:
        return
    if header.count is not None:
        yield MapFill(family, schema.AFFINITY, header.count, schema.AFFINITY_SIZE)

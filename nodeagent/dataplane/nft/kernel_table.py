"""One family's table in the kernel: read all of it, or the parts that tell whether somebody changed it.

Blocking, like the socket; callers that hold an event loop run it in a worker thread.
"""

import time
from collections.abc import Iterator, Mapping
from itertools import islice

from nodeagent.dataplane.errors import KernelUnclear
from nodeagent.dataplane.framing import nested
from nodeagent.dataplane.nft import attributes as nl
from nodeagent.dataplane.nft import schema
from nodeagent.dataplane.nft.belief import Contents
from nodeagent.dataplane.nft.netlink import NetlinkSocket
from nodeagent.dataplane.nft.readback import (
    ElementDump,
    TableHeader,
    collect_elements,
    parse_chain,
    parse_rule,
    parse_set,
    parse_table,
)
from nodeagent.dataplane.nft.render import programmed_keys
from nodeagent.dataplane.nft.schema import SetSpec
from nodeagent.dataplane.nft.transaction import (
    GETCHAIN,
    GETRULE,
    GETSET,
    GETSETELEM,
    GETTABLE,
    encode_keys,
    nfproto,
)
from nodeagent.model.addresses import Family

DUMP_ATTEMPTS = 20
DUMP_PAUSE_SECONDS = 0.05
FETCH_ABOVE = 150_000
"""Endpoints from which on they are asked for by key. The kernel walks a set from its beginning for every 32 kB of a
dump (nf_tables_api.c, nf_tables_dump_set), so a dump's time grows with the square of the set."""
FETCH_KEYS = 256
"""In one request: the answers, a datagram each, wait in the socket's buffer."""
_ENDPOINTS = frozenset({schema.BACKENDS, schema.NODEPORT_BACKENDS})


class KernelTable:
    """Reads the table `nodeagent` of one family. fetch_above: elements from which on endpoints are not dumped."""

    def __init__(
        self, socket: NetlinkSocket, family: Family, specs: Mapping[str, SetSpec], *, fetch_above: int = FETCH_ABOVE
    ) -> None:
        self._socket = socket
        self._family = family
        self._specs = specs
        self._fetch_above = fetch_above
        self._table = nl.string(1, schema.TABLE)

    def header(self) -> TableHeader | None:
        """The table object; None when there is none."""
        try:
            return parse_table(self._socket.get(GETTABLE, nfproto(self._family), self._table))
        except FileNotFoundError:
            return None

    def read(self) -> Contents | None:
        """The whole table; None when there is none. A table of another schema comes without its elements.

        Raises KernelUnclear when no consistent dump could be had.
        """
        contents = self.outline()
        if contents is None or not contents.fits(self._specs, self._family):
            return contents
        for name in schema.DATA_SETS:
            if name not in contents.image:
                self._add_elements(contents, name)
        for name in schema.PROGRAM_SETS:
            if name not in contents.verdicts:
                self._add_verdicts(contents, name)
        return contents

    def outline(self) -> Contents | None:
        """Table, sets, chains and rules: what most foreign changes show in.

        Elements only of sets that cannot be counted: of ranges, which are few (a range is one or two elements), and
        all of them on kernels that do not tell how many elements a set has (Linux 6.1 does not, 6.18 does).
        """
        header = self.header()
        if header is None:
            return None
        contents = Contents(header)
        family = nfproto(self._family)
        try:
            for _, data in self._socket.dump(GETSET, family, self._table):
                found = parse_set(data)
                contents.sets[found.name] = found
            for _, data in self._socket.dump(GETCHAIN, family, self._table):
                table, name, hook = parse_chain(data)
                # The kernel dumps the chains of all tables of a family, whichever was asked for.
                if table == schema.TABLE:
                    contents.hooks[name] = hook
            for _, data in self._socket.dump(GETRULE, family, self._table):
                rule = parse_rule(data)
                contents.rules.setdefault(rule.chain, []).append(rule)
            if contents.fits(self._specs, self._family):
                for name in schema.DATA_SETS:
                    ranges = self._specs[name].interval and len(self._specs[name].key) == 1
                    if ranges or contents.sets[name].count is None:
                        self._add_elements(contents, name)
                for name in schema.PROGRAM_SETS:
                    if contents.sets[name].count is None:
                        self._add_verdicts(contents, name)
        except FileNotFoundError:
            return None
        return contents

    def _add_elements(self, contents: Contents, name: str) -> None:
        dump = self._fetched(contents, name) or self.elements(name)
        contents.image[name] = dump.elements
        if dump.counters:
            contents.counters[name] = dump.counters

    def _fetched(self, contents: Contents, name: str) -> ElementDump | None:
        """The endpoints of a big set, by the keys its frontends lead to; None when those are not all it has."""
        count = contents.sets[name].count
        if name not in _ENDPOINTS or count is None or count <= self._fetch_above:
            return None
        keys = programmed_keys(contents.image, name)
        try:
            fetched = collect_elements(self._specs[name], self._fetch(name, keys))
        except (FileNotFoundError, KernelUnclear):
            return None
        return fetched if len(fetched.elements) == self._count(name) else None

    def _fetch(self, name: str, keys: Iterator[bytes]) -> Iterator[memoryview]:
        where = self._table + nl.string(2, name)
        while wanted := list(islice(keys, FETCH_KEYS)):
            body = where + nested(3, *encode_keys(self._specs[name], wanted))
            yield from self._socket.fetch(GETSETELEM, nfproto(self._family), body)

    def _add_verdicts(self, contents: Contents, name: str) -> None:
        contents.verdicts[name] = {key: chain.decode() for key, chain in self.elements(name).elements.items()}

    def elements(self, name: str) -> ElementDump:
        """All elements of a set, from a dump that can be believed: no key twice, and as many as the set has.

        A hash set that is being resized gives some elements twice and leaves others out, without any error; a moment
        later it is whole again. A dynamic set's count includes expired elements, so only duplicates count there.
        """
        spec = self._specs[name]
        family = nfproto(self._family)
        where = self._table + nl.string(2, name)
        for _ in range(DUMP_ATTEMPTS):
            try:
                dump = collect_elements(spec, (data for _, data in self._socket.dump(GETSETELEM, family, where)))
            except KernelUnclear:
                continue
            count = None if spec.dynamic or spec.interval else self._count(name)
            if not dump.duplicates and (count is None or count == len(dump.elements)):
                return dump
            time.sleep(DUMP_PAUSE_SECONDS)
        raise KernelUnclear(f"set {name}: no consistent dump in {DUMP_ATTEMPTS} attempts")

    def _count(self, name: str) -> int | None:
        where = self._table + nl.string(2, name)
        return parse_set(self._socket.get(GETSET, nfproto(self._family), where)).count

"""Reads one family's table in the kernel: all of it, or the parts that show whether another process changed it.

Blocking, like the socket; callers on an event loop run it in a worker thread.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Retryable
from nodeagent.proxy.dataplane.driver.belief import Contents
from nodeagent.proxy.dataplane.driver.readback import hook_of, same_set
from nodeagent.proxy.dataplane.driver.ruleset import READ_ATTEMPTS, Ruleset, read_objects, repeated, typed_errors
from nodeagent.proxy.dataplane.errors import DumpInterrupted, KernelBusy, KernelUnclear
from nodeagent.proxy.dataplane.image.carried_counts import COUNTED, Counts
from nodeagent.proxy.dataplane.image.image import Elements, ReadableImage
from nodeagent.proxy.dataplane.image.render import endpoint_lists, image_of_services, programmed_keys
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.schema import SetSpec
from nodeagent.wire.netlink.equal_answers import EqualAnswers
from nodeagent.wire.netlink.netfilter import nfproto
from nodeagent.wire.netlink.nf_tables.element_reading import (
    AnswerShape,
    ElementDump,
    read_counters,
    read_elements,
    read_pairs,
)
from nodeagent.wire.netlink.nf_tables.elements import pack_catch_all, pack_keys
from nodeagent.wire.netlink.nf_tables.ruleset_objects import (
    ChainHeader,
    Flowtable,
    KernelRule,
    TableHeader,
    named_set,
    pack_element_list,
    pack_rules,
    pack_table,
    read_chain,
    read_flowtable,
    read_rule,
    read_set,
    read_table,
)
from nodeagent.wire.netlink.uapi.nf_tables import (
    NFT_MSG_GETCHAIN,
    NFT_MSG_GETFLOWTABLE,
    NFT_MSG_GETRULE,
    NFT_MSG_GETSET,
    NFT_MSG_GETSETELEM,
    NFT_MSG_GETTABLE,
)

T = TypeVar("T")

DUMP_PAUSE_SECONDS = 0.05
FETCH_ABOVE = 50_000
"""If there are more endpoints than this, they are fetched by key. The kernel walks a set from its beginning for every 32 kB of a
dump (nf_tables_api.c, nf_tables_dump_set), so a dump's time grows with the square of the set: with 100,000 both take the same time."""
FETCH_KEYS = 1000
"""In one request: its answers, one datagram each, wait in the socket's buffer (a kilobyte each), and its keys fill 44 kB."""
SAMPLE_ABOVE = 1000
"""A set of more elements than this, on kernels that do not count them, is sampled at each look, not read whole."""
SAMPLE_KEYS = 64
_ENDPOINTS = frozenset({schema.BACKENDS, schema.NODEPORT_BACKENDS})


def present_specs(socket: Ruleset, family: Family) -> dict[str, SetSpec]:
    """Returns our sets as this kernel's table has them, with or without counters; without a table: without counters."""

    def counts(name: str) -> bool:
        try:
            with typed_errors():
                return read_set(socket.get(NFT_MSG_GETSET, nfproto(family), named_set(schema.TABLE, name))).counter
        except FileNotFoundError:
            return False

    found = schema.set_specs(counters=counts(schema.FRONTENDS), endpoint_counters=counts(schema.BACKENDS))
    return {spec.name: spec for spec in found}


class KernelTable:
    """Reads the table `nodeagent` of one family, or another one with our schema.

    fetch_above: with more endpoints than this they are fetched by key, not dumped.
    only: Services, `namespace/name`: only the endpoints to which their frontends lead are read, if all of them exist; empty: all.
    """

    def __init__(
        self,
        socket: Ruleset,
        family: Family,
        specs: Mapping[str, SetSpec],
        *,
        fetch_above: int = FETCH_ABOVE,
        only: Collection[str] = (),
        name: str = schema.TABLE,
    ) -> None:
        self._socket = socket
        self._family = family
        self._specs = specs
        self._fetch_above = fetch_above
        self._only = only
        self._name = name
        self._table = pack_table(name)

    def header(self) -> TableHeader | None:
        """Returns the table object; None if the table does not exist."""
        try:
            with typed_errors():
                return read_table(self._socket.get(NFT_MSG_GETTABLE, nfproto(self._family), self._table))
        except FileNotFoundError:
            return None

    def read(self) -> Contents | None:
        """Reads the whole table; None if it does not exist, or is removed meanwhile. A table of another schema comes without its
        elements.

        Raises DumpInterrupted if no dump was consistent.
        """
        contents = self.outline()
        if contents is None or not contents.fits(self._specs, self._family):
            return contents
        try:
            for name in schema.DATA_SETS:
                if name not in contents.image:
                    self._add_elements(contents, name)
            for name in schema.PROGRAM_SETS:
                if name not in contents.verdicts:
                    self._add_verdicts(contents, name)
        except FileNotFoundError:
            return None
        contents.flowtables = {found.name: found.devices for found in self.flowtables()}
        return contents

    def outline(self, believed: ReadableImage | None = None) -> Contents | None:
        """Reads table, sets, chains and rules, and the elements that lead to chains: most foreign changes show in these.

        Elements of services are read only if they cannot be counted: those of ranges, which are few (a range is one or two
        elements), and all on kernels that do not report how many elements a set has (Linux 6.1 does not, 6.18 does). There
        a sample is enough for a set that is believed to be big, if the sample is as believed.

        Raises DumpInterrupted if others' changes interrupted every attempt.
        """
        believed = believed or {}
        header = self.header()
        if header is None:
            return None
        contents = Contents(header)
        try:
            contents.sets = {found.name: found for found in self._read(NFT_MSG_GETSET, read_set)}
            if contents.fits(self._specs, self._family):
                contents.catch_all = next(filter(self._has_catch_all, self._specs), "")
            for chain in self._chains():
                contents.hooks[chain.name] = hook_of(chain.hook)
                contents.policies[chain.name] = chain.policy
            for rule in self._rules(contents.hooks):
                contents.rules.setdefault(rule.chain, []).append(rule)
            if contents.fits(self._specs, self._family):
                for name in schema.DATA_SETS:
                    ranges = self._specs[name].interval and len(self._specs[name].key) == 1
                    if not ranges and (contents.sets[name].count is not None):
                        continue
                    if self._sample_matches(name, believed.get(name, {})):
                        contents.sampled.add(name)
                    else:
                        self._add_elements(contents, name)
                for name in schema.PROGRAM_SETS:
                    self._add_verdicts(contents, name)
        except FileNotFoundError:
            return None
        return contents

    def flowtables(self) -> list[Flowtable]:
        """Returns the table's flowtables; empty if there is no table. Raises DumpInterrupted."""
        return [found for found in self._read(NFT_MSG_GETFLOWTABLE, read_flowtable) if found.table == self._name]

    def base_chains(self) -> tuple[str, ...]:
        """Returns the names of the base chains; empty if there is no table. Raises DumpInterrupted."""
        return tuple(chain.name for chain in self._chains() if chain.hook is not None)

    def _chains(self) -> list[ChainHeader]:
        """Returns the table's chains. The kernel dumps those of all tables of a family, whatever the request names."""
        return [chain for chain in self._read(NFT_MSG_GETCHAIN, read_chain) if chain.table == self._name]

    def _has_catch_all(self, name: str) -> bool:
        """Returns whether the set has an element that matches every other key; the kernel's count does not include it."""
        body = pack_element_list(self._name, name, (pack_catch_all(),))
        try:
            return any(True for _ in self._fetch_once(body))
        except FileNotFoundError:
            return False

    def _rules(self, chains: Iterable[str]) -> list[KernelRule]:
        """Returns all rules from one dump, or chain by chain if others' changes interrupt that every time."""
        try:
            return self._read(NFT_MSG_GETRULE, read_rule, attempts=1)
        except KernelBusy:
            return [
                rule for name in chains for rule in self._read(NFT_MSG_GETRULE, read_rule, pack_rules(self._name, name))
            ]

    def _read(
        self, kind: int, parse: Callable[[memoryview], T], where: bytes | None = None, attempts: int = READ_ATTEMPTS
    ) -> list[T]:
        body = self._table if where is None else where
        return read_objects(self._socket, kind, nfproto(self._family), parse, body, attempts)

    def first_other(self, name: str, elements: Elements) -> bytes | None:
        """Returns the first key that the set lacks or has with another value; None if it has all. They are fetched by key."""
        spec = self._specs[name]
        form = spec.form(self._family)
        shape = AnswerShape(form, self._name, name)
        remaining = list(elements)
        while remaining:
            keys = remaining[:FETCH_KEYS]
            confirmed = 0
            if not spec.interval:
                body = pack_element_list(self._name, name, pack_keys(form, keys))
                expected = shape.expected({key: elements[key] for key in keys})
                confirmed = self._socket.count_confirmed(
                    NFT_MSG_GETSETELEM, nfproto(self._family), body, shape.start, expected, exact=shape.exact
                )
            remaining = remaining[confirmed:]
            if confirmed < len(keys):
                # The bytes are not the expected ones: compare their meaning.
                key = remaining.pop(0)
                try:
                    with typed_errors():
                        found = read_elements(form, self._fetch(name, iter((key,)))).elements
                except FileNotFoundError:
                    return key
                if found != {key: elements[key]}:
                    return key
        return None

    def _sample_matches(self, name: str, believed: Mapping[bytes, bytes]) -> bool:
        """Returns whether some elements of a big set are as believed; False for a small set."""
        if len(believed) <= SAMPLE_ABOVE:
            return False
        sample = dict(islice(believed.items(), 0, None, len(believed) // SAMPLE_KEYS))
        return self.first_other(name, sample) is None

    def affinity(self) -> ElementDump | None:
        """Returns what clients learned; None if there is no such set, or it has another type."""
        spec = self._specs[schema.AFFINITY]
        where = named_set(self._name, schema.AFFINITY)
        try:
            with typed_errors():
                found = read_set(self._socket.get(NFT_MSG_GETSET, nfproto(self._family), where))
            return self.elements(schema.AFFINITY) if same_set(found, spec, self._family) else None
        except FileNotFoundError:
            return None

    def learned_endpoints(self) -> Iterator[Elements]:
        """Yields which endpoint each client learned, a datagram at a time: some twice and others not at all while the
        set grows. Raises FileNotFoundError if there is no such set."""
        form = self._specs[schema.AFFINITY].form(self._family)
        where = named_set(self._name, schema.AFFINITY)
        for data in self._socket.dump(NFT_MSG_GETSETELEM, nfproto(self._family), where):
            with typed_errors():
                pairs = read_pairs(form, data)
            yield pairs

    def counts(self, keys: Mapping[str, list[bytes]] | None = None) -> Counts:
        """Returns the counters of elements: of these keys, or of all. Leaves out maps of another type, and those that cannot be read."""
        found: Counts = {}
        for name in [name for name in COUNTED if self._specs[name].counter]:
            wanted = None if keys is None else keys.get(name, [])
            try:
                if wanted is None:
                    where = named_set(self._name, name)
                    with typed_errors():
                        held = read_set(self._socket.get(NFT_MSG_GETSET, nfproto(self._family), where))
                    if same_set(held, self._specs[name], self._family):
                        found[name] = self.elements(name).counters
                elif wanted:
                    with typed_errors():
                        fetched = self._fetch(name, iter(wanted))
                        form = self._specs[name].form(self._family)
                        found[name] = read_counters(form, named_set(self._name, name), fetched)
            except (FileNotFoundError, Retryable):
                continue
        return found

    def _add_elements(self, contents: Contents, name: str) -> None:
        fetched = self._fetch_endpoints(contents, name)
        dump = self.elements(name) if fetched is None else fetched
        contents.image[name] = dump.elements
        if dump.counters:
            contents.counters[name] = dump.counters

    def _fetch_endpoints(self, contents: Contents, name: str) -> ElementDump | None:
        """Returns the endpoints of a big set, by the keys its frontends lead to; None if the set has others.

        With `only`: the endpoints of those Services, whatever else the set has.
        """
        if name not in _ENDPOINTS:
            return None
        if self._only:
            keys = dict.fromkeys(programmed_keys(image_of_services(contents.image, self._only), name))
            return self._fetch_all(name, iter(keys))
        count = contents.sets[name].count
        if count is None or count <= self._fetch_above:
            return None
        fetched = self._fetch_all(name, programmed_keys(contents.image, name))
        if fetched is None or len(fetched.elements) != self._count(name):
            return None
        contents.lists.update(endpoint_lists(contents.image, name, fetched.elements))
        return fetched

    def _fetch_all(self, name: str, keys: Iterator[bytes]) -> ElementDump | None:
        """Returns the elements of these keys, in this order; None if some do not exist, or one came twice."""
        form = self._specs[name].form(self._family)
        shape = AnswerShape(form, self._name, name)
        answers = EqualAnswers(FETCH_KEYS, shape.size)
        fetched, asked = ElementDump(), 0
        try:
            while wanted := list(islice(keys, FETCH_KEYS)):
                body = pack_element_list(self._name, name, pack_keys(form, wanted))
                with typed_errors():
                    equal = self._socket.fetch_equal(
                        NFT_MSG_GETSETELEM, nfproto(self._family), body, len(wanted), answers
                    )
                    values = None if equal is None else shape.values(equal, wanted)
                    if values is None:
                        some = None if equal is None else shape.read(equal)
                        if some is None:
                            some = read_elements(form, self._fetch_once(body))
                        if list(some.elements) != wanted:
                            return None
                        fetched.counters |= some.counters
                        values = list(some.elements.values())
                fetched.elements.update(zip(wanted, values, strict=True))
                asked += len(wanted)
        except (FileNotFoundError, KernelUnclear):
            return None
        return fetched if len(fetched.elements) == asked else None

    def has(self, name: str, key: bytes) -> bool:
        """Returns whether the table has a set with this element. Raises KernelUnclear."""
        try:
            return any(True for _ in self._fetch(name, iter((key,))))
        except FileNotFoundError:
            return False

    def _fetch(self, name: str, keys: Iterator[bytes]) -> Iterator[memoryview]:
        form = self._specs[name].form(self._family)
        while wanted := list(islice(keys, FETCH_KEYS)):
            body = pack_element_list(self._name, name, pack_keys(form, wanted))
            yield from self._fetch_once(body)

    def _fetch_once(self, body: bytes) -> list[memoryview]:
        """Returns the elements of one request."""
        return repeated(lambda: list(self._socket.fetch(NFT_MSG_GETSETELEM, nfproto(self._family), body)))

    def _add_verdicts(self, contents: Contents, name: str) -> None:
        contents.verdicts[name] = {
            key: chain.decode(errors="replace") for key, chain in self.elements(name).elements.items()
        }

    def elements(self, name: str) -> ElementDump:
        """Returns all elements of a set, from a consistent dump: no key twice, and as many as the set has.

        A dump of a hash set that is being resized has some elements twice and lacks others, without any error; a moment
        later it is complete again. A dynamic set's count includes expired elements, so only duplicates are checked there.
        """
        spec = self._specs[name]
        where = named_set(self._name, name)

        def read() -> ElementDump:
            dump = self._socket.dump(NFT_MSG_GETSETELEM, nfproto(self._family), where)
            with typed_errors():
                return read_elements(spec.form(self._family), dump)

        for _ in range(READ_ATTEMPTS):
            dump = repeated(read)
            count = None if spec.dynamic or spec.interval else self._count(name)
            if not dump.duplicates and (count is None or count == len(dump.elements)):
                return dump
            time.sleep(DUMP_PAUSE_SECONDS)
        raise DumpInterrupted(f"set {name}: no consistent dump in {READ_ATTEMPTS} attempts")

    def _count(self, name: str) -> int | None:
        where = named_set(self._name, name)
        with typed_errors():
            return read_set(self._socket.get(NFT_MSG_GETSET, nfproto(self._family), where)).count

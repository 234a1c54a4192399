"""Reads our tables from the kernel, for commands that compare or explain."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from functools import cached_property
from types import MappingProxyType

from nodeagent.cli.read_retries import read_with_retries
from nodeagent.diagnosis.explain.kernel import KernelFrontend, KernelService, TableState
from nodeagent.diagnosis.tables.deviation import Deviation, deviations_of_service
from nodeagent.diagnosis.tables.inspection import ProgrammedFrontend, programmed_frontends
from nodeagent.diagnosis.trace.table_reading import TableReading, read_contents
from nodeagent.model.addresses import Family, endpoint_text, unpack_address
from nodeagent.model.frontend import Frontend, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.dataplane.conntrack_flows import tracked_flows
from nodeagent.proxy.dataplane.driver.belief import Contents, Ownership, belief_from
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.image.affinity import affinity_id
from nodeagent.proxy.dataplane.image.image import Elements, TableImage, class_of, empty_image
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program

Known = Mapping[Family, TableReading | None]
"""Our tables as read before; None: there was no table."""


class KernelView:
    """The table of one family. contents: None if the table does not exist. affinity: the elements of the affinity map."""

    def __init__(
        self,
        family: Family,
        program: ProgramOptions | None,
        only: ObjectKey | None = None,
        *,
        affinity: bool = True,
        known: TableReading | None = None,
    ) -> None:
        """Reads the table. only: a Service; endpoints of other Services are left out if its own are complete. affinity:
        whether to read the affinity of clients. known: the table, as read before; it is read again if the rules have changed. Raises a
        DataplaneError and OSError."""
        self.family = family
        self._only = None if only is None else str(only)
        self._wants_affinity = affinity
        self._known = known
        self.affinity: Elements = {}
        self.reading = read_with_retries(self._read)
        self.contents = None if self.reading is None else self.reading.contents
        self.state = self._state(program)

    @property
    def image(self) -> TableImage:
        """The elements of the table; empty if the table is not one of ours."""
        usable = self.contents is not None and self.state in (TableState.RIGHT, TableState.CHANGED)
        return self.contents.image if usable and self.contents is not None else empty_image(schema.DATA_SETS)

    def _read(self) -> TableReading | None:
        with closing(Ruleset()) as ruleset:
            found = read_contents(ruleset, self.family, () if self._only is None else (self._only,), self._known)
            if self._wants_affinity and found is not None and found.contents.fits(found.specs, self.family):
                learned = KernelTable(ruleset, self.family, found.specs).affinity()
                self.affinity = {} if learned is None else learned.elements
        return found

    def _state(self, program: ProgramOptions | None) -> TableState:
        if self.reading is None:
            return TableState.MISSING
        contents, specs = self.reading.contents, self.reading.specs
        if not contents.fits(specs, self.family):
            return TableState.FOREIGN
        if program is None:
            return TableState.RIGHT if _has_rules(contents, self.family) else TableState.CHANGED
        belief = belief_from(contents, specs, self.family, program, Ownership.PLAIN)
        return TableState.RIGHT if belief.program_right else TableState.CHANGED

    def of_service(
        self,
        key: ObjectKey,
        state: ServiceState | None,
        *,
        flows: bool,
        missing: AbstractSet[str] = frozenset(),
        listed: bool = True,
        compared: bool = True,
    ) -> KernelService:
        """Returns everything about one Service. flows: include tracked connections. missing: addresses that the service
        interface lacks. listed: include what the table has for it. compared: include how that differs from `state`."""
        usable = self.contents is not None and self.state in (TableState.RIGHT, TableState.CHANGED)
        if not usable or self.contents is None:
            return KernelService(self.family.value, self.state)
        own = [] if state is None else [one for one in state.frontends if one.family is self.family]
        not_local = tuple(sorted(missing & {one.address for one in own})) if missing else ()
        deviating: Sequence[Deviation] = ()
        if compared and state is not None:
            deviating = deviations_of_service(key, state, self.family, self.contents.image)
        return KernelService(
            self.family.value,
            self.state,
            tuple(_frontend(one) for one in self._by_service.get(str(key), ())) if listed else (),
            tuple(map(str, deviating)),
            self._affinity(own) if listed else {},
            tracked_flows(self.family, own) if flows else {},
            not_local,
        )

    @cached_property
    def _by_service(self) -> dict[str, list[ProgrammedFrontend]]:
        found: dict[str, list[ProgrammedFrontend]] = {}
        if self.contents is not None:
            for one in programmed_frontends(self.contents, self.family, self._only):
                found.setdefault(one.service.partition(":")[0], []).append(one)
        return found

    def _affinity(self, frontends: Sequence[Frontend]) -> Mapping[str, int]:
        ids = {
            affinity_id(one.service_port, route.scope)
            for one in frontends
            if one.affinity_seconds is not None
            for route in (one.route, one.short_circuit)
            if route is not None
        }
        held = Counter(value for key, value in self.affinity.items() if ids and class_of(key[-4:]) in ids)
        return {_endpoint(value): count for value, count in sorted(held.items())}


def read_kernel(
    families: Iterable[Family],
    program: Mapping[Family, ProgramOptions] | None,
    only: ObjectKey | None = None,
    *,
    affinity: bool = True,
    known: Known = MappingProxyType({}),
) -> list[KernelView]:
    """Reads the tables of these families. only, affinity, known: as in `KernelView`. Raises DataplaneError and OSError."""
    options = program or {}
    return [KernelView(each, options.get(each), only, affinity=affinity, known=known.get(each)) for each in families]


def _has_rules(contents: Contents, family: Family) -> bool:
    """Returns whether every chain has rules that has rules under each configuration."""
    program = build_program(family, ProgramOptions(PodDetection.NONE), (), ())
    return all(contents.rules.get(chain.name) for chain in program.chains if chain.rules)


def _frontend(one: ProgrammedFrontend) -> KernelFrontend:
    action = f"pick of {len(one.backends)}" if one.action == "pick" else one.action
    return KernelFrontend(
        one.kind,
        f"{endpoint_text(one.address, one.port)}/{one.protocol}",
        one.scope,
        action,
        tuple(endpoint_text(*backend) for backend in one.backends),
        one.connections,
        one.picked,
    )


def _endpoint(value: bytes) -> str:
    return endpoint_text(unpack_address(value[:-4]), int.from_bytes(value[-4:-2], "big"))

"""A trace on this node: reads everything from the kernel, then follows one packet."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from nodeagent.diagnosis.trace.journey import End, Journey, Node, journeys
from nodeagent.diagnosis.trace.kernel_connections import read_connections
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.link_programs import (
    LinkProgram,
    note_of_unlearned,
    programs_on_the_way,
    read_link_programs,
)
from nodeagent.diagnosis.trace.others import OtherTable
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.report import Report
from nodeagent.diagnosis.trace.table_reading import TableReading, read_own_table
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset

ReadOthers = Callable[[Ruleset, Family], tuple[tuple[OtherTable, ...], tuple[str, ...]]]


def look(ruleset: Ruleset, question: Question, read_others: ReadOthers, interface: str = "") -> Report:
    """Returns what happens to a connection here. interface: by which it comes in; empty: that of the route back to its
    source.
    Raises DataplaneError, OSError."""
    with KernelRoutes() as routes:
        node, notes = read_node(ruleset, question.family, read_others, routes.addresses_at_interfaces())
        found = journeys(question, node, routes, interface)
        ends = _ends(question, found)
        interfaces = frozenset(name for end in ends for name in routes.ends_at(*end))
        programs = read_link_programs()
        passed = map(str, programs_on_the_way(programs, interfaces))
        possibly = _possibly_passed(programs, interfaces, ends, routes)
        notes = (*passed, *possibly, *_barred(found, interfaces, routes), *notes)
        return Report(question, node, found, read_connections(question), notes)


def _barred(found: Sequence[Journey], interfaces: frozenset[str], routes: KernelRoutes) -> list[str]:
    """Returns why VLANs separate ports from this node, for the bridges on the packet's path, if the packet does not
    arrive. Any such port may lead to the host: the port of a host that does not answer is not known."""
    if all(one.end is End.ARRIVED for one in found):
        return []
    return [why for port, (why, _) in routes.barred_ports().items() if routes.bridge_with_port(port) in interfaces]


def _ends(question: Question, found: Sequence[Journey]) -> list[tuple[str, str]]:
    """Returns the interfaces of the routes that a packet of the connection takes, each with the next host there."""
    ends: dict[tuple[str, str], None] = {}
    for one in found:
        if one.came_by:
            ends[one.came_by, question.source] = None
        if one.route is not None and one.route.interface:
            ends[one.route.interface, one.route.gateway or one.packet.destination] = None
    return [*ends]


def _possibly_passed(
    programs: Sequence[LinkProgram], passed: frozenset[str], ends: Sequence[tuple[str, str]], routes: KernelRoutes
) -> Iterator[str]:
    """Yields a note for each bridge that has programs at its ports and has not learned the port of a host at these ends."""
    hosts: dict[str, list[str]] = {}
    found: dict[str, list[LinkProgram]] = {}
    for interface, host in ends if programs else ():
        if at_ports := programs_on_the_way(programs, {*routes.possible_ports(interface, host)} - passed):
            hosts.setdefault(interface, []).append(host)
            found[interface] = at_ports
    for bridge, unlearned in hosts.items():
        yield note_of_unlearned(found[bridge], bridge, unlearned)


def read_node(
    ruleset: Ruleset,
    family: Family,
    read_others: ReadOthers,
    at_interface: Mapping[str, frozenset[str]],
    known: TableReading | None = None,
    *,
    settled: bool = True,
) -> tuple[Node, tuple[str, ...]]:
    """Returns the node, and notes on what could not be read. known: our table, if it was read already. settled: as in `read_own_table`.

    at_interface: the addresses here, by interface. They are read before the rules, because commits wait for a process that reads these.
    Raises DataplaneError, OSError.
    """
    own = read_own_table(ruleset, family, known, settled=settled)
    others, notes = read_others(ruleset, family)
    return Node(own, others, frozenset().union(*at_interface.values()), at_interface), notes

"""A trace on this node: everything is read from the kernel, then one packet is followed."""

from collections.abc import Callable

from nodeagent.diagnosis.trace.journey import Node, journeys
from nodeagent.diagnosis.trace.kernel_connections import read_connections
from nodeagent.diagnosis.trace.kernel_routes import KernelRoutes
from nodeagent.diagnosis.trace.others import OtherTable
from nodeagent.diagnosis.trace.question import Question
from nodeagent.diagnosis.trace.report import Report
from nodeagent.diagnosis.trace.table_reading import read_own_table
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset

ReadOthers = Callable[[Ruleset, Family], tuple[tuple[OtherTable, ...], tuple[str, ...]]]


def look(ruleset: Ruleset, question: Question, read_others: ReadOthers, interface: str = "") -> Report:
    """What becomes of a connection here. interface: by which it comes in; empty: as the route back to its source says.

    Raises DataplaneError, OSError.
    """
    with KernelRoutes() as routes:
        node, notes = read_node(ruleset, question.family, read_others, routes)
        return Report(
            question, node, journeys(question, node, routes, interface), read_connections(question), tuple(notes)
        )


def read_node(
    ruleset: Ruleset, family: Family, read_others: ReadOthers, routes: KernelRoutes
) -> tuple[Node, tuple[str, ...]]:
    """What is on the node, and what could not be read. Raises DataplaneError, OSError."""
    others, notes = read_others(ruleset, family)
    return Node(read_own_table(ruleset, family), others, routes.local_addresses()), notes

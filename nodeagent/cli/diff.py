"""`nodeagent diff`: what is wanted of the kernel, tables and service interface, and what it has."""

import time
from collections.abc import Mapping, Sequence

import click
from msgspec import Struct

from nodeagent.cli.asking import asking_options, verdict_style
from nodeagent.cli.carried_addresses import wanted_addresses
from nodeagent.cli.columns import Column
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.cli.kernel_view import KernelView, read_kernel
from nodeagent.cli.node_reading import look_at_node
from nodeagent.cli.node_view import Access, NodeView
from nodeagent.cli.rows import output_option, print_document, print_rows
from nodeagent.diagnosis.explain.kernel import TableState
from nodeagent.diagnosis.tables.deviation import Deviation, deviations
from nodeagent.model.addresses import family_of
from nodeagent.proxy.dataplane.errors import DataplaneError, NotPermitted
from nodeagent.proxy.dataplane.interface_deviation import (
    RIGHT,
    AddressDeviation,
    InterfaceFound,
    address_deviations,
    interface_state,
)
from nodeagent.proxy.dataplane.interface_reading import read_interface

LOOKS = 5
PAUSE_SECONDS = 0.2
"""Between looks: what the agent is just about to write is no difference."""

COLUMNS = (
    Column("family", "FAMILY"),
    Column("set", "SET"),
    Column("key", "KEY"),
    Column("wanted", "WANTED"),
    Column("found", "FOUND"),
    Column("service", "SERVICE"),
)


class Difference(Struct, frozen=True):
    """verdict: the first line. tables, interface: how each is, by family and by name; no interface where none is wanted.

    addresses: those of the service interface, and local routes over it, that differ.
    """

    verdict: str
    same: bool
    origin: str
    tables: dict[str, str]
    interface: dict[str, str]
    elements: tuple[Deviation, ...]
    addresses: tuple[AddressDeviation, ...]


@click.command(
    "diff",
    epilog=examples(
        "nodeagent diff                       what the agent wants against what the kernel has",
        "nodeagent diff --manifests DIR       what a directory wants, without an agent",
        "nodeagent diff -o json               the verdict is the first field",
    ),
)
@output_option
@asking_options
def diff_command(output: str, access: Access) -> None:
    """Compare every element that is wanted on this node with what the kernel has, and the service interface.

    A dash under WANTED is something that should not be there, one under FOUND something that is missing. Learned
    affinity and counters are not compared.

    Exit codes: 0 the same, 1 different or failed, 3 no permission.
    """
    for _ in range(LOOKS):
        found = _compare(access)
        if found.same:
            break
        time.sleep(PAUSE_SECONDS)
    if output in ("json", "yaml"):
        print_document(found, output)
    else:
        click.echo(verdict_style(found.verdict, good=found.same))
        click.echo(f"from: {found.origin}")
        for family, state in found.tables.items():
            click.echo(f"table {family}: {state}")
        for name, state in found.interface.items():
            click.echo(f"interface {name}: {state}")
        if found.elements or found.addresses:
            rows: list[dict[str, object]] = [
                {
                    "family": one.family,
                    "set": one.set,
                    "key": one.key,
                    "wanted": _shown(one.wanted),
                    "found": _shown(one.found),
                    "service": one.service or None,
                }
                for one in found.elements
            ]
            rows += (
                {
                    "family": family_of(one.address.partition("/")[0]).value,
                    "set": ", ".join(found.interface),
                    "key": one.address,
                    "wanted": one.wanted,
                    "found": one.found,
                    "service": one.service or None,
                }
                for one in found.addresses
            )
            print_rows(COLUMNS, rows, output, wide=frozenset({"family", "service"}), name="key")
    click.get_current_context().exit(0 if found.same else FAILED)


def _shown(value: str | None) -> str | None:
    return "there" if value == "" else value


def _compare(access: Access) -> Difference:
    """Raises Failure."""
    view = look_at_node(access)
    try:
        kernel = read_kernel(view.families, view.program if view.agent is not None else None)
        interface = None if view.interface is None else read_interface(view.interface, view.context.node_addresses)
    except NotPermitted as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
    return difference(view, kernel, interface)


def difference(view: NodeView, kernel: Sequence[KernelView], interface: InterfaceFound | None) -> Difference:
    """The comparison of what was learned. interface: None where none is wanted."""
    elements: list[Deviation] = []
    for table in kernel:
        elements += deviations(view.states, view.node, table.family, table.image)
    tables = {table.family.value: table.state.value for table in kernel}
    own = dict.fromkeys(view.own_addresses, "")
    wanted = {} if interface is None else own | wanted_addresses(view, view.states)
    addresses = [] if interface is None else address_deviations(wanted, interface)
    states = {} if interface is None else {str(view.interface): interface_state(interface)}
    wrong = [] if all(table.state is TableState.RIGHT for table in kernel) else [_listed("table", tables)]
    wrong += [f"interface {name} {state}" for name, state in states.items() if state != RIGHT]
    same = not (wrong or elements or addresses)
    if same:
        number = sum(len(each) for table in kernel for each in table.image.values())
        verdict = f"same: {number} elements, {len(wanted)} addresses"
    else:
        counted = [f"{len(elements)} elements"] if elements or not addresses else []
        counted += [f"{len(addresses)} addresses"] if addresses else []
        verdict = f"different: {'; '.join([*wrong, ', '.join(counted)])}"
    return Difference(verdict, same, view.origin, tables, states, tuple(elements), tuple(addresses))


def _listed(what: str, states: Mapping[str, str]) -> str:
    return ", ".join(f"{what} {name} is {state}" for name, state in states.items())

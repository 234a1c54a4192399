"""`nodeagent diff`: compares the wanted tables and service interface with those in the kernel."""

import time
from collections.abc import Mapping, Sequence

import click
from msgspec import Struct

from nodeagent.cli.asking import access_options, verdict_style
from nodeagent.cli.carried_addresses import wanted_addresses
from nodeagent.cli.columns import Column
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED
from nodeagent.cli.kernel_reading import kernel_failures
from nodeagent.cli.kernel_view import KernelView, read_kernel
from nodeagent.cli.node_reading import look_at_node
from nodeagent.cli.node_view import Access, NodeView
from nodeagent.cli.rows import output_option, print_document, print_rows
from nodeagent.diagnosis.explain.kernel import TableState
from nodeagent.diagnosis.tables.deviation import Deviation, deviations
from nodeagent.model.addresses import family_of
from nodeagent.proxy.dataplane import interface_deviation
from nodeagent.proxy.dataplane.interface_reading import read_interface

ATTEMPTS = 5
PAUSE_SECONDS = 0.2
"""Pause between comparisons. A change that the agent is about to write does not count as a difference."""

COLUMNS = (
    Column("family", "FAMILY"),
    Column("set", "SET"),
    Column("key", "KEY"),
    Column("wanted", "WANTED"),
    Column("found", "FOUND"),
    Column("service", "SERVICE"),
)


class Difference(Struct, frozen=True):
    """The result. verdict: the first line. tables: {family: state}. interface: {name: state}; empty if none is wanted.

    addresses: addresses of the service interface, and local routes over it, that differ.
    """

    verdict: str
    same: bool
    origin: str
    tables: dict[str, str]
    interface: dict[str, str]
    elements: tuple[Deviation, ...]
    addresses: tuple[interface_deviation.AddressDeviation, ...]


@click.command(
    "diff",
    epilog=examples(
        "nodeagent diff                       what the agent wants against what the kernel has",
        "nodeagent diff --manifests DIR       what a directory wants, without an agent",
        "nodeagent diff -o json               the verdict is the first field",
    ),
)
@output_option
@access_options
def diff_command(output: str, access: Access) -> None:
    """Compare the wanted elements and service interface of this node with those in the kernel.

    A dash under WANTED marks something that should not exist, a dash under FOUND something that is missing. Affinity of
    clients and counters are not compared.

    Exit codes: 0 the same, 1 different or failed, 3 no permission.
    """
    for _ in range(ATTEMPTS):
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
    """Reads both sides and compares them. Raises Failure."""
    view = look_at_node(access)
    with kernel_failures():
        kernel = read_kernel(view.families, view.program if view.agent is not None else None)
        interface = None if view.interface is None else read_interface(view.interface, view.context.node_addresses)
    return difference(view, kernel, interface)


def difference(
    view: NodeView, kernel: Sequence[KernelView], interface: interface_deviation.InterfaceFound | None
) -> Difference:
    """Compares the wanted state with what was read. interface: None if none is wanted."""
    elements: list[Deviation] = []
    for table in kernel:
        elements += deviations(view.states, view.node, table.family, table.image)
    tables = {table.family.value: table.state.value for table in kernel}
    own = dict.fromkeys(view.own_addresses, "")
    wanted = {} if interface is None else own | wanted_addresses(view, view.states)
    addresses = [] if interface is None else interface_deviation.address_deviations(wanted, interface)
    states = {} if interface is None else {str(view.interface): interface_deviation.interface_state(interface)}
    wrong = [] if all(table.state is TableState.RIGHT for table in kernel) else [_listed("table", tables)]
    wrong += [f"interface {name} {state}" for name, state in states.items() if state != interface_deviation.RIGHT]
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

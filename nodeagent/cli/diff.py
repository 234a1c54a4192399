"""`nodeagent diff`: what is wanted of the kernel, and what it has."""

import time
from collections.abc import Sequence

import click
from msgspec import Struct

from nodeagent.cli.asking import asking_options, examples, output_option, print_document, print_rows, verdict_style
from nodeagent.cli.columns import Column
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.cli.kernel_view import KernelView, read_kernel
from nodeagent.cli.node_view import Access, NodeView, look_at_node
from nodeagent.dataplane.errors import DataplaneError, NotPermitted
from nodeagent.dataplane.nft.deviation import Deviation, deviations
from nodeagent.explain.kernel import TableState

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
    """verdict: the first line. tables: how each family's is."""

    verdict: str
    same: bool
    origin: str
    tables: dict[str, str]
    elements: tuple[Deviation, ...]


@click.command(
    "diff",
    epilog=examples(
        "nodeagent diff                       what the agent wants against what the kernel has",
        "nodeagent diff --manifests DIR       what a directory wants, without an agent",
        "nodeagent diff -o json               the verdict is the first field",
    ),
)
@output_option("table", "wide", "json", "yaml")
@asking_options
def diff_command(output: str, access: Access) -> None:
    """Compare every element that is wanted on this node with what the kernel has.

    A dash under WANTED is an element that should not be there, one under FOUND an element that is missing. Learned
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
        if found.elements:
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
            print_rows(COLUMNS, rows, output, wide=frozenset({"family", "service"}), name="key")
    click.get_current_context().exit(0 if found.same else FAILED)


def _shown(value: str | None) -> str | None:
    return "there" if value == "" else value


def _compare(access: Access) -> Difference:
    """Raises Failure."""
    view = look_at_node(access)
    try:
        kernel = read_kernel(view.families, view.program if view.agent is not None else None)
    except NotPermitted as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except (DataplaneError, OSError) as error:
        raise Failure(str(error), FAILED) from error
    return difference(view, kernel)


def difference(view: NodeView, kernel: Sequence[KernelView]) -> Difference:
    """The comparison of what was learned."""
    elements: list[Deviation] = []
    for table in kernel:
        elements += deviations(view.states, view.node, table.family, table.image)
    tables = {table.family.value: table.state.value for table in kernel}
    right = all(table.state is TableState.RIGHT for table in kernel)
    if right and not elements:
        verdict = f"same: {sum(len(each) for table in kernel for each in table.image.values())} elements"
    else:
        wrong = "" if right else f"{', '.join(f'table {name} is {state}' for name, state in tables.items())}; "
        verdict = f"different: {wrong}{len(elements)} elements"
    return Difference(verdict, right and not elements, view.origin, tables, tuple(elements))

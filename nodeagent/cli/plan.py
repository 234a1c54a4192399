"""`nodeagent plan`: what a directory of manifests would change on this node."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import click
from msgspec import Struct

from nodeagent.cli.asking import access_options
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import UNUSABLE, Failure
from nodeagent.cli.node_reading import look_at_node
from nodeagent.cli.node_view import Access, NodeView
from nodeagent.cli.rows import output_option, print_document
from nodeagent.diagnosis.explain.change import ServiceChange, changes_between
from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.problem import Problem
from nodeagent.model.text import printable
from nodeagent.proxy.dataplane.image.desired import DesiredImage
from nodeagent.proxy.dataplane.image.image import empty_image
from nodeagent.proxy.dataplane.program.schema import DATA_SETS


class Elements(Struct, frozen=True):
    """Numbers of elements, in both tables, that are added, removed and changed."""

    come: int
    go: int
    change: int


class Plan(Struct, frozen=True):
    """The result. verdict: the first line of output. problems: objects that would not be in effect, and why."""

    verdict: str
    against: str
    services: tuple[ServiceChange, ...]
    elements: Elements
    problems: tuple[Problem, ...]


@click.command(
    "plan",
    epilog=examples(
        "nodeagent plan --manifests DIR                   against what the agent has in effect",
        "nodeagent plan --manifests NEW --against OLD     against another directory, without an agent",
    ),
)
@click.option("--against", metavar="DIRECTORY", help="Compare with these manifests instead of asking the agent.")
@output_option
@access_options
def plan_command(against: str | None, output: str, access: Access) -> None:
    """Print what --manifests DIRECTORY would change on this node. Changes nothing and needs no privileges.

    Exit codes: 0, 1 failed, 2 wrong arguments.
    """
    if access.manifests is None:
        raise Failure("plan needs --manifests DIRECTORY: what is to be in effect", UNUSABLE)
    if against is not None:
        before = look_at_node(replace(access, manifests=against))
        after = look_at_node(access)
    else:
        _must_be_readable(access.manifests)
        asked = replace(access, manifests=None, kubeconfig=None, node_name=None)
        before = look_at_node(
            asked,
            otherwise="compare with --against DIRECTORY, an empty one for a node without Services",
            states_only=True,
        )
        name = access.node_name or (before.agent.node if before.agent is not None else None)
        after = look_at_node(replace(access, node_name=name), like=before)
    found = plan(before, after)
    if output in ("json", "yaml"):
        print_document(found, output)
        return
    if output != "name":
        click.echo(found.verdict)
        click.echo(f"against: {found.against}")
    for one in found.services:
        click.echo(printable(one.service if output == "name" else f"{one.change} {one.service}"))
        if output != "name":
            click.echo("\n".join(f"    {printable(line)}" for line in one.details))
    if output != "name":
        for problem in found.problems:
            click.echo(printable(f"problem: {problem}"))


def _must_be_readable(manifests: str) -> None:
    """Raises Failure. Called first, so that a mistyped name is reported rather than a missing agent."""
    try:
        with os.scandir(manifests):
            pass
    except OSError as error:
        raise Failure(f"manifest directory {manifests}: {error.strerror or error}", UNUSABLE) from error


def plan(before: NodeView, after: NodeView) -> Plan:
    """Returns the changes from `before` to `after`."""
    keys = before.states.keys() | after.states.keys()
    changed = {key: after.states.get(key) for key in sorted(keys) if before.states.get(key) != after.states.get(key)}
    services = changes_between(_only(changed, before.states), _only(changed, after.states))
    come = go = change = 0
    for family in after.families if changed or before.node != after.node else ():
        for have, want in _changed_elements(before, changed, after.node, family):
            come, go, change = (
                come + (have is None),
                go + (want is None),
                change + (have is not None and want is not None),
            )
    counts = {sign: sum(one.change == sign for one in services) for sign in "+-~"}
    if services or come or go or change:
        verdict = (
            f"{counts['+']} Services come, {counts['-']} go, {counts['~']} change;"
            f" {come} elements come, {go} go, {change} change"
        )
    else:
        verdict = "nothing would change"
    return Plan(verdict, before.origin, services, Elements(come, go, change), after.problems)


def _only(keys: Iterable[ObjectKey], states: Mapping[ObjectKey, ServiceState]) -> dict[ObjectKey, ServiceState]:
    return {key: states[key] for key in keys if key in states}


def _changed_elements(
    before: NodeView, changed: Mapping[ObjectKey, ServiceState | None], node: NodeState, family: Family
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yields the value before and after of each element that differs. Renders the Services that change a second time, as an agent
    does. changed: their states after (None: the Service is gone). node: after."""
    desired = DesiredImage(family)
    desired.update(before.states, empty_image(DATA_SETS))
    desired.set_node(before.node)
    desired.settle()
    old = desired.programmed
    desired.update(changed, old)
    desired.set_node(node)
    for name, touched in desired.dirty.items():
        for key in touched:
            have, want = old[name].get(key), desired.image[name].get(key)
            if have != want:
                yield have, want

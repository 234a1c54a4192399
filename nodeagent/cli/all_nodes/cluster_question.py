"""Asks the agents of all nodes one question, and prints the answers."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import NoReturn

import click

from nodeagent.cli.all_nodes.agent_pods import AgentPlace, ClusterLister, find_agents
from nodeagent.cli.all_nodes.asking import Agents, NoAnswer
from nodeagent.cli.all_nodes.cluster_options import BRIEF, ClusterTarget
from nodeagent.cli.asking import verdict_style
from nodeagent.cli.columns import Column
from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.rows import print_document, print_rows
from nodeagent.diagnosis.all_nodes.cluster_verdict import cluster_verdict, is_healthy, worst_first
from nodeagent.diagnosis.all_nodes.node_answers import READERS, Condition, NodeAnswer, Unreadable
from nodeagent.model.text import printable
from nodeagent.proxy.source.client.api_client import ApiClient, Timeouts
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.client.kubeconfig import load_kubeconfig
from nodeagent.proxy.source.pod_exec import ExecResult

Work = Coroutine[None, None, None]
TIMEOUTS = Timeouts(connect=10.0, headers=20.0, body=30.0)
NO_SUCH_OPTION = "No such option"
COLUMNS = (
    Column("node", "NODE"),
    Column("state", "STATE"),
    Column("what", "WHAT, AND WHY"),
    Column("do", "WHAT TO DO"),
    Column("also", "ALSO", number=True),
)
HAS_DOCUMENT = (0, FAILED)
"""Exit codes with which a command has printed its document."""


def exit_with_answers(cluster: ClusterTarget, command: Sequence[str], output: str) -> NoReturn:
    """Prints the answers of all nodes and exits with 0 if all are healthy, else with 1. command: `explain`, `check` or
    `problems` with arguments. Raises Failure."""
    answers = answers_of(cluster, command)
    _print(answers, output)
    click.get_current_context().exit(0 if is_healthy(answers) else FAILED)


def answers_of(cluster: ClusterTarget, command: Sequence[str]) -> list[NodeAnswer]:
    """Returns the answers of all nodes, the worst first. Raises Failure."""
    answers: dict[str, NodeAnswer] = {}
    old: list[AgentPlace] = []
    read = READERS[command[0]]

    def take(place: AgentPlace, result: ExecResult | NoAnswer) -> None:
        if (
            isinstance(result, ExecResult)
            and result.code not in HAS_DOCUMENT
            and NO_SUCH_OPTION in result.errors
            and BRIEF in command
        ):
            old.append(place)
        answers[place.node] = _answer(place, result, read)

    async def ask(_: ClusterLister, agents: Agents, places: Sequence[AgentPlace]) -> None:
        await agents.ask(places, lambda _: command, take)
        if old:  # these agents do not have the option
            older = [word for word in command if word != BRIEF]
            again = list(old)
            old.clear()
            await agents.ask(again, lambda _: older, take)

    run_with_agents(cluster, ask)
    return worst_first(answers.values())


def run_with_agents(
    cluster: ClusterTarget, work: Callable[[ClusterLister, Agents, Sequence[AgentPlace]], Work], **limits: int
) -> None:
    """Finds the agents and runs `work` with them. limits: arguments of `Agents`. Raises Failure."""

    async def run() -> None:
        access = load_kubeconfig(cluster.kubeconfigs, cluster.context)
        async with ApiClient(access, user_agent="nodeagent-all-nodes", timeouts=TIMEOUTS) as client:
            places = await find_agents(client, cluster.namespace, cluster.nodes, cluster.selector)
            agents = Agents(client, cluster.namespace, within=cluster.within, seconds=cluster.seconds, **limits)
            await work(client, agents, places)

    try:
        asyncio.run(run())
    except KubeError as error:
        raise Failure(str(error), UNUSABLE) from error


def _answer(place: AgentPlace, came: ExecResult | NoAnswer, read: Callable[[str, str], NodeAnswer]) -> NodeAnswer:
    if isinstance(came, NoAnswer):
        return NodeAnswer(place.node, Condition.UNKNOWN, str(came))
    if came.code not in HAS_DOCUMENT or not came.output.strip():
        lines = came.errors.strip().splitlines()
        why = lines[-1].removeprefix("nodeagent: ") if lines else f"it ended with {came.code} and printed nothing"
        return NodeAnswer(place.node, Condition.UNKNOWN, why)
    try:
        return read(place.node, came.output)
    except Unreadable as error:
        return NodeAnswer(place.node, Condition.UNKNOWN, str(error))


def _print(answers: Sequence[NodeAnswer], output: str) -> None:
    verdict, healthy = cluster_verdict(answers), is_healthy(answers)
    if output in ("json", "yaml"):
        nodes = [_document(one) for one in answers]
        print_document({"verdict": verdict, "healthy": healthy, "nodes": nodes}, output)
        return
    if output != "name":
        asked = sum(one.condition is not Condition.UNKNOWN for one in answers)
        click.echo(verdict_style(printable(verdict), good=healthy))
        click.echo(f"from: {asked} of {len(answers)} nodes")
    shown = [one for one in answers if one.condition is not Condition.HEALTHY] if output == "name" else answers
    rows = [row for one in shown for row in _rows(one, every=output == "wide")]
    if rows:
        print_rows(COLUMNS, rows, output, wide=frozenset({"do"}), name="node")


def _rows(one: NodeAnswer, *, every: bool) -> list[dict[str, object]]:
    """Returns rows for a node. every: one for each complaint; else one for the first, with the number of the others."""
    shown = one.complaints if every else one.complaints[:1]
    also = len(one.complaints) - len(shown) + one.more
    if not shown:
        what = one.verdict.removeprefix("healthy: ")
        return [{"node": one.node, "state": one.condition.word, "what": what, "do": "", "also": also}]
    return [
        {
            "node": one.node,
            "state": each.condition.word,
            "what": f"{each.title}, because {each.because}",
            "do": each.do,
            "also": also,
        }
        for each in shown
    ]


def _document(one: NodeAnswer) -> dict[str, object]:
    complaints = [
        {
            "subject": each.subject,
            "state": each.condition.word,
            "what": each.title,
            "because": each.because,
            "do": each.do,
        }
        for each in one.complaints
    ]
    fields = {"node": one.node, "state": one.condition.word, "verdict": one.verdict}
    return fields | {"complaints": complaints, "more": one.more}

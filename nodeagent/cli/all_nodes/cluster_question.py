"""One question to the agents of all nodes, and what is printed of it."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence

import click

from nodeagent.cli.all_nodes.agent_pods import AgentPlace, ClusterLister, find_agents
from nodeagent.cli.all_nodes.asking import Agents, NotAsked
from nodeagent.cli.all_nodes.cluster_options import BRIEF, AskedCluster
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
from nodeagent.proxy.source.pod_exec import Ran

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
WAITS = (0, FAILED)
"""Exit codes of a command that has printed its document."""


def ask_cluster(cluster: AskedCluster, command: Sequence[str], output: str) -> bool:
    """Print what all nodes say; whether all are healthy. command: `explain`, `check` or `problems` with its arguments.

    Raises Failure.
    """
    answers = answers_of(cluster, command)
    _print(answers, output)
    return is_healthy(answers)


def answers_of(cluster: AskedCluster, command: Sequence[str]) -> list[NodeAnswer]:
    """Worst first. Raises Failure."""
    answers: dict[str, NodeAnswer] = {}
    old: list[AgentPlace] = []
    read = READERS[command[0]]

    def take(place: AgentPlace, came: Ran | NotAsked) -> None:
        if isinstance(came, Ran) and came.code not in WAITS and NO_SUCH_OPTION in came.errors and BRIEF in command:
            old.append(place)
        answers[place.node] = _answer(place, came, read)

    async def ask(_: ClusterLister, agents: Agents, places: Sequence[AgentPlace]) -> None:
        await agents.ask(places, lambda _: command, take)
        if old:  # of a version that did not know it
            older = [word for word in command if word != BRIEF]
            again = list(old)
            old.clear()
            await agents.ask(again, lambda _: older, take)

    in_cluster(cluster, ask)
    return worst_first(answers.values())


def in_cluster(
    cluster: AskedCluster, work: Callable[[ClusterLister, Agents, Sequence[AgentPlace]], Work], **limits: int
) -> None:
    """Find the agents and let `work` ask them. limits: of `Agents`. Raises Failure."""

    async def run() -> None:
        access = load_kubeconfig(cluster.kubeconfig, cluster.context)
        async with ApiClient(access, user_agent="nodeagent-all-nodes", timeouts=TIMEOUTS) as client:
            places = await find_agents(client, cluster.namespace, cluster.nodes, cluster.selector)
            agents = Agents(client, cluster.namespace, within=cluster.within, seconds=cluster.seconds, **limits)
            await work(client, agents, places)

    try:
        asyncio.run(run())
    except KubeError as error:
        raise Failure(str(error), UNUSABLE) from error


def _answer(place: AgentPlace, came: Ran | NotAsked, read: Callable[[str, str], NodeAnswer]) -> NodeAnswer:
    if isinstance(came, NotAsked):
        return NodeAnswer(place.node, Condition.UNKNOWN, str(came))
    if came.code not in WAITS or not came.output.strip():
        lines = came.errors.strip().splitlines()
        said = lines[-1].removeprefix("nodeagent: ") if lines else f"it ended with {came.code} and said nothing"
        return NodeAnswer(place.node, Condition.UNKNOWN, said)
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
    """every: a row for each complaint; else for the first, with how many there are besides."""
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
    told = {"node": one.node, "state": one.condition.word, "verdict": one.verdict}
    return told | {"complaints": complaints, "more": one.more}

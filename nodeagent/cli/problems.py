"""`nodeagent problems`, `journal` and `log-level`: the agent's problems, its last passes, and its log level."""

from collections.abc import Sequence
from pathlib import Path

import click

from nodeagent.cli.all_nodes.cluster_options import ClusterTarget, cluster_options
from nodeagent.cli.asking import access_options, socket_option, verdict_style
from nodeagent.cli.columns import Column
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import FAILED, Failure
from nodeagent.cli.node_reading import ask_agent, look_at_node
from nodeagent.cli.node_view import Access
from nodeagent.cli.rows import output_option, print_rows
from nodeagent.diagnosis.verdict_line import verdict_line
from nodeagent.model.problem import Problem
from nodeagent.proxy.observe.admin.admin_client import NoAgent
from nodeagent.proxy.observe.admin.admin_documents import LOG_LEVELS, LogLevelDocument, Transaction

PROBLEM_COLUMNS = (
    Column("subject", "SUBJECT"),
    Column("reason", "REASON"),
    Column("since", "SINCE"),
    Column("detail", "DETAIL"),
)
JOURNAL_COLUMNS = (
    Column("at", "AT"),
    Column("milliseconds", "MS", number=True),
    Column("elements", "ELEMENTS", number=True),
    Column("messages", "MESSAGES", number=True),
    Column("services", "SERVICES", number=True),
    Column("names", "NAMES", leaves=1),
    Column("tables", "TABLES"),
)


@click.command(
    "problems",
    epilog=examples(
        "nodeagent problems",
        "nodeagent problems --manifests DIR   what would not be in effect",
        "nodeagent problems --all-nodes       of every node of the cluster",
    ),
)
@output_option
@cluster_options()
@access_options
def problems_command(output: str, access: Access, cluster: ClusterTarget | None) -> None:
    """List every problem: what is not in effect or not as it should be, and since when.

    Exit codes: 0 without problems, 1 with problems, or failed.
    """
    if cluster is not None:
        from nodeagent.cli.all_nodes.cluster_question import exit_with_answers  # noqa: PLC0415 - loads a client

        exit_with_answers(cluster, ["problems", "-o", "json"], output)
    view = look_at_node(access)
    rows: list[dict[str, object]] = [
        {"subject": one.subject, "reason": one.reason, "since": view.since.get(one), "detail": one.detail}
        for one in sorted(view.problems)
    ]
    if output in ("table", "wide"):
        verdict = _verdict(sorted(view.problems))
        click.echo(verdict_style(verdict, good=not rows))
        click.echo(f"from: {view.origin}")
    if rows or output in ("json", "yaml"):
        print_rows(PROBLEM_COLUMNS, rows, output, wide=frozenset(), name="subject")
    click.get_current_context().exit(FAILED if rows else 0)


@click.command("journal", epilog=examples("nodeagent journal", "nodeagent journal --last 5 -o json"))
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="Number of passes.")
@output_option
@socket_option
def journal_command(last: int, output: str, socket: str | None) -> None:
    """Print the last passes that changed something or failed: sizes, durations, errors. The newest is the last.

    Exit codes: 0, 1 failed.
    """
    client, _ = ask_agent(Access(None if socket is None else Path(socket)))
    rows = [_row(one) for one in client.ask("transactions", tuple[Transaction, ...])[-last:]]
    print_rows(JOURNAL_COLUMNS, rows, output, wide=frozenset({"messages"}), name="at")


def _verdict(problems: Sequence[Problem]) -> str:
    if not problems:
        return "healthy: no problems"
    return verdict_line("not healthy", problems[0].subject, problems[0].detail, more=len(problems) - 1)


def _row(one: Transaction) -> dict[str, object]:
    return {
        "at": one.at,
        "milliseconds": round(one.seconds * 1000, 1),
        "elements": sum(table.elements for table in one.tables),
        "messages": sum(table.messages for table in one.tables),
        "services": one.services,
        "names": list(one.names),
        "tables": [f"{table.family}: {table.error or ('new' if table.new_table else 'ok')}" for table in one.tables],
    }


@click.command("log-level", epilog=examples("nodeagent log-level", "nodeagent log-level debug"))
@click.argument("level", type=click.Choice(LOG_LEVELS), required=False)
@socket_option
def log_level_command(level: str | None, socket: str | None) -> None:
    """Print the level of the running agent's log, or change it until the agent ends or reads its configuration again.

    Exit codes: 0, 1 failed.
    """
    client, _ = ask_agent(Access(None if socket is None else Path(socket)))
    try:
        if level is not None:
            client.set_log_level(level)
        click.echo(client.ask("log-level", LogLevelDocument).level)
    except NoAgent as error:
        raise Failure(str(error), FAILED) from error

"""`nodeagent demo`: a cluster of three nodes on this machine for half a minute, in use and under faults."""

import click

from nodeagent.cli.examples import examples
from nodeagent.lab.demo import main


@click.command("demo", epilog=examples("nodeagent demo"))
@click.option("--agent-option", "options", multiple=True, help="One more option of every agent (repeatable).")
@click.pass_context
def demo_command(ctx: click.Context, *, options: tuple[str, ...]) -> None:
    """Show in half a minute what a Service is: three nodes, six pods, a client outside, all in network namespaces here.

    Connects on every way, replaces all pods and kills an agent under load. Everything is removed at the end, also after an interrupt.

    Exit codes: 0, 1 failed or not root, 128 + n after signal n.
    """
    ctx.exit(main([f"--agent-option={option}" for option in options]))

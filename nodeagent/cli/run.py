"""`nodeagent run`: the daemon."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator

import click

from nodeagent.agent import Agent
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, UNUSABLE, Failure
from nodeagent.cli.options import config_options
from nodeagent.config import LoadedConfig, LogFormat
from nodeagent.dataplane.errors import NotPermitted, Unsupported
from nodeagent.engine.sync import SyncFailedError
from nodeagent.kube.errors import OperatorError
from nodeagent.kube.manifest_source import ManifestError
from nodeagent.observe.http import BindFailed
from nodeagent.observe.logging_setup import set_up_logging

_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (OperatorError, UNUSABLE),
    (ManifestError, UNUSABLE),
    (NotPermitted, CANNOT_PROGRAM),
    (Unsupported, CANNOT_PROGRAM),
    (SyncFailedError, FAILED),
    (BindFailed, FAILED),
)

logger = logging.getLogger(__name__)


@click.command("run")
@click.option("--once", is_flag=True, help="Program the present state, leave it in place and exit.")
@config_options
def run_command(*, once: bool, loaded: LoadedConfig) -> None:
    """Program services until SIGTERM or SIGINT; the rules stay in place. Exit codes: 0, 1 failed, 2 unusable
    configuration or source, 3 no permission or a kernel that lacks something."""
    config = loaded.config
    set_up_logging(
        getattr(logging, config.logging.level.upper()),
        as_json=config.logging.format is LogFormat.JSON,
        journald="JOURNAL_STREAM" in os.environ,
    )
    for warning in loaded.warnings:
        logger.warning("config: %s", warning)
    for field in loaded.ignored:
        logger.warning("config: %s is ignored: %s", field.key, field.reason)
    try:
        asyncio.run(_run_until_signal(Agent(config, dict(os.environ)), once=once))
    except Exception as error:
        raise _explain(error) from error


async def _run_until_signal(agent: Agent, *, once: bool) -> None:
    """SIGTERM and SIGINT are the normal end."""
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(agent.run(once=once))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        logger.info("stopped; the rules stay in place")


def _explain(error: Exception) -> Exception:
    """The failure that a person can do something about; anything unforeseen keeps its traceback for a report."""
    leaves = list(_leaves(error))
    for kind, code in _EXIT_CODES:
        for leaf in leaves:
            if isinstance(leaf, kind):
                return Failure(str(leaf), code)
    logger.error("unexpected failure", exc_info=leaves[0])
    return Failure(f"unexpected failure: {type(leaves[0]).__name__}: {leaves[0]} (see the log)", FAILED)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions inside nested groups of a TaskGroup."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error

"""`nodeagent run`: the daemon."""

import asyncio
import faulthandler
import logging
import os
from collections.abc import Callable

import click

from nodeagent.cli.config_options import ConfigRejected, reloadable_config_options
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, UNUSABLE, Failure
from nodeagent.cli.lacking import missing_resource
from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.config_problems import ConfigError
from nodeagent.config.durations import parse_duration
from nodeagent.config.load import LoadedConfig
from nodeagent.daemon.announcement import announce
from nodeagent.daemon.arenas import use_one_arena
from nodeagent.daemon.collector import collect_rarely
from nodeagent.daemon.event_loop import DaemonLoop, NoThreads
from nodeagent.daemon.handover import until_children_have_ended
from nodeagent.daemon.part_options import conntrack_options, wanted_families
from nodeagent.daemon.signals import run_until_signal
from nodeagent.daemon.single_run import NotInTime, ProblemsRemain, run_once
from nodeagent.daemon.succession import Daemon, leaves_of
from nodeagent.proxy.dataplane.errors import NotPermitted, Unsupported
from nodeagent.proxy.dataplane.families import choose_families
from nodeagent.proxy.dataplane.node_sysctls import NodeSysctls
from nodeagent.proxy.engine.sync import SyncFailedError
from nodeagent.proxy.source.client.api_errors import OperatorError
from nodeagent.proxy.source.manifests.manifest_error import ManifestError
from nodeagent.runtime.serving.http import BindFailed
from nodeagent.runtime.systemd import SystemdNotifier
from nodeagent.runtime.thread_turns import take_short_turns

_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (OperatorError, UNUSABLE),
    (ManifestError, UNUSABLE),
    (NotPermitted, CANNOT_PROGRAM),
    (Unsupported, CANNOT_PROGRAM),
    (SyncFailedError, FAILED),
    (NotInTime, FAILED),
    (BindFailed, FAILED),
    (NoThreads, FAILED),
)

logger = logging.getLogger(__name__)


class PositiveDuration(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on, for type checkers only
    """Option type: a duration above zero, converted to seconds."""

    name = "duration"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns seconds. Raises a usage error if the text is not a duration above zero."""
        try:
            seconds = parse_duration(value).seconds
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return seconds if seconds > 0 else self.fail("must be more than 0s", param, ctx)


@click.command(
    "run",
    epilog=examples(
        "nodeagent run --manifests DIR --node-name NODE",
        "nodeagent run --kubeconfig FILE --cluster-cidr 10.244.0.0/16",
        "nodeagent run --config /etc/nodeagent/nodeagent.yaml",
        "nodeagent run --once --manifests DIR",
    ),
)
@click.option("--once", is_flag=True, help="Program the present state, leave it in place and exit.")
@click.option("--allow-problems", is_flag=True, help="With --once: exit with 0 although some object is not in effect.")
@click.option(
    "--timeout", type=PositiveDuration(), help="With --once: time limit, for example 30s; exit code 1 after it."
)
@click.option("--init-only", is_flag=True, help="Set the sysctls that the node needs, as root, and exit.")
@reloadable_config_options
def run_command(
    *, once: bool, allow_problems: bool, timeout: float | None, init_only: bool, load: Callable[[], LoadedConfig]
) -> None:
    """Program services until SIGTERM or SIGINT; the rules stay in place. SIGHUP reads the configuration again.

    Exit codes: 0, 1 failed, 2 unusable configuration or source, 3 no permission or a kernel that lacks something.
    """
    if allow_problems and not once:
        raise click.UsageError("--allow-problems needs --once")
    if once and init_only:
        raise click.UsageError("--once and --init-only are two different runs: give one of them")
    if timeout is not None and not once:
        raise click.UsageError("--timeout is for --once: the agent waits for its source as long as it takes")
    try:
        loaded = load()
    except ConfigError as error:
        raise ConfigRejected(error) from error
    announce(loaded)
    if init_only:
        _set_sysctls(loaded.config)
        return
    use_one_arena()
    collect_rarely()
    take_short_turns()
    faulthandler.enable()  # systemd's watchdog ends a process that hangs with SIGABRT: where did it hang?
    try:
        with asyncio.Runner(loop_factory=DaemonLoop) as runner:
            runner.run(_run_once(loaded, timeout) if once else _serve(loaded, load))
    except ProblemsRemain as error:
        if not allow_problems:
            raise Failure(str(error), FAILED) from error
    except Exception as error:
        raise _explain(error) from error


def _set_sysctls(config: AgentConfig) -> None:
    """Writes the sysctls that differ, and logs them. In a container only a privileged process can write /proc/sys: an init
    container runs this, so that the agent itself needs only CAP_NET_ADMIN."""
    sysctls = NodeSysctls(conntrack_options(config), manage=True)
    try:
        sysctls.forward(choose_families(wanted_families(config)))
    except Unsupported as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    sysctls.tune_conntrack()
    for problem in sysctls.problems():
        logger.warning("problem: %s", problem)


async def _run_once(loaded: LoadedConfig, within_seconds: float | None) -> None:
    environment = dict(os.environ)
    notifier = SystemdNotifier(environment)
    work = run_once(loaded.config, environment, notifier, within_seconds=within_seconds)
    await run_until_signal(work, stopping=notifier.stopping)


async def _serve(loaded: LoadedConfig, load: Callable[[], LoadedConfig]) -> None:
    daemon = Daemon(load, dict(os.environ), is_init=os.getpid() == 1)
    await run_until_signal(daemon.run(loaded), stopping=daemon.notifier.stopping, reload=daemon.reload)
    await until_children_have_ended(loaded.config.dns.handover.seconds)


def _explain(error: Exception) -> Exception:
    """Returns the Failure for a known error. Logs the traceback of an unexpected one."""
    leaves = list(leaves_of(error))
    for kind, code in _EXIT_CODES:
        for leaf in leaves:
            if isinstance(leaf, kind):
                return Failure(str(leaf), code)
    for leaf in leaves:
        if (known := missing_resource(leaf)) is not None:
            return known
    logger.error("unexpected failure", exc_info=leaves[0])
    return Failure(f"unexpected failure: {type(leaves[0]).__name__}: {leaves[0]} (see the log)", FAILED)

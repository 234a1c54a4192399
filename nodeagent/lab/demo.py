"""A service in half a minute: ``python -m nodeagent.lab.demo``, as root.

Builds a cluster of network namespaces, applies a Service with three pods, runs the agent on the node, connects 300
times, takes a pod out of the Service, connects again, and removes everything, also when it fails or is interrupted.
"""

import argparse
import os
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from rich.console import Console

from nodeagent.lab.answers import Survey, evenness
from nodeagent.lab.member import Holding
from nodeagent.lab.namespaces import LabError, our_namespaces
from nodeagent.lab.objects import ManifestDirectory, make_node, make_service, make_slices, service_port
from nodeagent.lab.process import AgentProcess
from nodeagent.lab.topology import POD_CIDRS
from nodeagent.lab.world import World

CONNECTIONS = 300
PODS = ("web-0", "web-1", "web-2")
TARGET_PORT = 8080
IPV4, IPV6 = CLUSTER_IPS = ("10.96.0.10", "fd00:10:96::10")
AGENT = (
    f"{shlex.quote(sys.executable)} -m nodeagent run --manifests {{manifests}} --node-name node-a"
    f" --cluster-cidr {','.join(POD_CIDRS)}"
)
SHOW = f"{shlex.quote(sys.executable)} -m nodeagent show"
PATIENCE = 10.0
SETTLED = 0.5
BAR = 40
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DIAGRAM = """\
outside ─── underlay ─┬─ node-a ─┬─ web-0, web-1, web-2   the pods of Service default/web
                      │  agent   └─ caller                a pod that connects
                      └─ node-b ─── far-0"""


class Demo:
    """The steps, in order. Each raises LabError when the cluster does not do what it should."""

    def __init__(self, world: World, manifests: ManifestDirectory, screen: Console, started: float) -> None:
        self._world = world
        self._manifests = manifests
        self._screen = screen
        self._started = started
        self._service = make_service("web", *CLUSTER_IPS, ports=[service_port(80, name="http")])

    def run(self, agent: str, show: str) -> None:
        """All of it, with these command lines for the agent and for a look at what it programmed (empty: none)."""
        self._say(f"built a cluster of {len(self._world.topology.members)} hosts, each a network namespace")
        self._print(DIAGRAM)
        for pod in PODS:
            self._world[pod].serve(TARGET_PORT)
        self._manifests.put(make_node("node-a", self._world["node-a"].addresses))
        self._apply(PODS)
        self._say(f"applied Service default/web, {IPV4}:80 and [{IPV6}]:80, with {len(PODS)} ready pods")
        process = self._start(agent)
        self._connect(PODS)
        self._connect_from_elsewhere()
        if show:
            self._show(show)
        self._remove_a_pod(process)
        self._connect(PODS[:-1])
        status = process.stop()
        self._say(f"stopped the agent with SIGTERM (exit status {status}); what it programmed stays in force:")
        self._connect(PODS[:-1])

    def _say(self, text: str) -> None:
        self._screen.print(f"[dim]{time.monotonic() - self._started:5.2f} s[/]  ", end="")
        self._screen.print(text, highlight=False, markup=False, soft_wrap=True)

    def _print(self, text: str, style: str = "cyan") -> None:
        for line in text.splitlines():
            self._screen.print(f"         {line}", style=style, highlight=False, markup=False, soft_wrap=True)

    def _apply(self, pods: Collection[str]) -> None:
        places = [(self._world[pod].addresses, "node-a") for pod in pods]
        self._manifests.put(*make_slices(self._service, places, target_port=TARGET_PORT), self._service)

    def _start(self, agent: str) -> AgentProcess:
        began = time.monotonic()
        argv = shlex.split(agent.replace("{manifests}", shlex.quote(str(self._manifests.path))))
        process = self._world.start("node-a", argv)
        caller = self._world["caller"]
        process.wait_until(
            lambda: not any(caller.ask(address, 80, timeout=0.2).failures for address in CLUSTER_IPS),
            "an answer from the service",
            seconds=PATIENCE,
        )
        self._say(f"started the agent; the service answers {time.monotonic() - began:.2f} s later, in both families")
        return process

    def _connect(self, pods: Sequence[str]) -> None:
        began = time.monotonic()
        survey = self._world["caller"].ask(IPV4, 80, count=CONNECTIONS)
        check(survey)
        self._say(f"{CONNECTIONS} connections from pod caller to {IPV4}:80 in {time.monotonic() - began:.2f} s:")
        self._print(bars(survey.names, pods), style="green")
        chance = evenness(survey.names, pods)
        self._print(f"a fair choice is at least this uneven in {chance:.0%} of all runs", style="dim")
        if chance < 1e-6:
            raise LabError(f"that was no fair choice among {', '.join(pods)}")

    def _connect_from_elsewhere(self) -> None:
        for client, who in (("node-a", "the node itself"), ("outside", "a host outside"), ("caller", "pod caller")):
            survey = self._world[client].ask(IPV6, 80, count=CONNECTIONS)
            check(survey)
            counts = ", ".join(f"{name} {survey.names[name]}" for name in PODS)
            peers = ", ".join(sorted(survey.peers))
            self._say(f"{CONNECTIONS} from {who} to [{IPV6}]:80: {counts}; the pods saw {peers}")

    def _show(self, command: str) -> None:
        result = self._world.run("node-a", shlex.split(command), check=False)
        if result.returncode:
            raise LabError(f"`{command}` ended with {result.returncode}: {result.stderr.strip()}")
        self._say("nodeagent show")
        self._print(result.stdout)

    def _remove_a_pod(self, agent: AgentProcess) -> None:
        leaving, caller = PODS[-1], self._world["caller"]
        with caller.hold(IPV4, 80, count=30) as held, caller.load(IPV4, 80, interval=0.001, timeout=1) as load:
            check(held.opened)
            changed = time.monotonic()
            self._apply(PODS[:-1])
            agent.wait_until(
                lambda: time.monotonic() > max(changed, load.report().last.get(leaving, 0.0)) + SETTLED,
                f"no more connections to {leaving}",
                seconds=PATIENCE,
            )
            report = load.stop()
            last = max(changed, report.last.get(leaving, 0.0))
            failed = sum(report.failures.values())
            self._say(
                f"took {leaving} out of the Service under load: its last connection began {last - changed:.3f} s later;"
            )
            self._print(f"{report.attempts - failed} of {report.attempts} connections made meanwhile were answered")
            self._check_held(held, leaving)
        if failed:
            raise LabError(f"{failed} connections failed, the first with {report.failed[0].detail}")
        self._world.remove_pod(leaving)

    def _check_held(self, held: Holding, leaving: str) -> None:
        still = held.ask()
        check(still)
        self._print(
            f"{len(still)} connections opened before, {still.names[leaving]} of them to {leaving}: all still answered"
        )


def check(survey: Survey) -> None:
    """Raise LabError unless every question was answered."""
    if survey.failures:
        kinds = ", ".join(f"{count} {failure.value}" for failure, count in survey.failures.items())
        raise LabError(f"of {len(survey)} connections failed: {kinds}")


def bars(names: Counter[str], servers: Sequence[str]) -> str:
    """A line per server: its name, its count, a bar."""
    most = max(names.values(), default=1)
    return "\n".join(f"{s:8}{names[s]:5}  {'█' * round(BAR * names[s] / most)}" for s in servers)


def obstacle() -> str:
    """Why the demo cannot run here; empty when it can."""
    if os.geteuid():
        return "it makes network namespaces: run it as root"
    missing = [program for program in ("ip", "setpriv") if not shutil.which(program)]
    return f"missing programs: {', '.join(missing)}" if missing else ""


def leave(number: int, _: FrameType | None) -> None:
    """A signal as an exception, so that everything is cleaned up on the way out; a second one does not disturb that."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 all went well, 1 it did not (one line on stderr says why), 128 + n ended by signal n."""
    parser = argparse.ArgumentParser(prog="python -m nodeagent.lab.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agent", default=AGENT, help="command line; {manifests} is the directory (%(default)s)")
    parser.add_argument("--show", default=SHOW, help="command line, empty for none (%(default)s)")
    options = parser.parse_args(arguments)
    if reason := obstacle():
        print(f"demo: {reason}", file=sys.stderr)
        return 1
    for number in ENDING:
        signal.signal(number, leave)
    screen = Console()
    started = time.monotonic()
    try:
        with TemporaryDirectory(prefix="nodeagent-demo-") as path, World() as world:
            Demo(world, ManifestDirectory(Path(path)), screen, started).run(options.agent, options.show)
    except LabError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except SystemExit as ending:
        print(f"demo: interrupted, everything removed after {time.monotonic() - started:.1f} s", file=sys.stderr)
        return int(ending.code or 0)
    left = [name for name in our_namespaces() if name.startswith(f"nodeagent-lab-{os.getpid()}-")]
    screen.print(f"[dim]{time.monotonic() - started:5.2f} s[/]  removed everything; namespaces left: {len(left)}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

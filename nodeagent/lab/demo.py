"""A service in half a minute: ``python -m nodeagent.lab.demo``, as root.

Builds a lab of three nodes, creates a Service from a manifest with kubectl, connects from a pod, from a node and from
outside through every kind of address, replaces all pods and kills an agent under load, and removes everything, also
when it fails or is interrupted.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import yaml
from rich.console import Console

from nodeagent.lab.answers import evenness
from nodeagent.lab.live.api import Access, Api
from nodeagent.lab.live.caller import Line, ask, conversation, start, take_down
from nodeagent.lab.live.directory import LabDirectory
from nodeagent.lab.live.objects import SERVICES
from nodeagent.lab.live.plan import CLIENT, Settings, caller_name, node_name
from nodeagent.lab.live.requests import (
    Connect,
    Connected,
    FaultReport,
    GetStatus,
    InjectFault,
    Locate,
    Place,
    ServiceStatus,
    Status,
)
from nodeagent.lab.live.tables import table
from nodeagent.lab.namespaces import LabError

NODES, PODS = 3, 2
CONNECTIONS = 240
RATE = 200.0
PATIENCE = 15.0
BAR = 40
UNFAIR = 1e-6
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SERVICE = "default/shop"
MANIFEST = """\
apiVersion: v1
kind: Service
metadata:
  name: shop
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {app: echo}
  ports:
    - {name: http, port: 80, targetPort: 8080}
"""
DIAGRAM = """\
client ──┐                  ┌─ node-1 (agent) ── pods echo-1-1, echo-1-2, caller-1
         ├─ router, bridge ─┼─ node-2 (agent) ── pods echo-2-1, echo-2-2, caller-2
control ─┘                  └─ node-3 (agent) ── pods echo-3-1, echo-3-2, caller-3
(API server)"""


class Demo:
    """The steps, in order. Each raises LabError when the lab does not do what it should."""

    def __init__(self, directory: LabDirectory, screen: Console, started: float) -> None:
        self._directory = directory
        self._screen = screen
        self._started = started

    def run(self) -> None:
        """All of it, in a lab that is up."""
        self._print(DIAGRAM)
        self._apply()
        shop = self._await_shop()
        self._connect(shop)
        self._show()
        self._break("rollover", f"replaced all {NODES * PODS} pods")
        self._break("kill", "killed an agent with SIGKILL and started it again a second later")

    def tell(self, line: Line) -> None:
        """One step of building."""
        self._say(line.text)

    def _say(self, text: str) -> None:
        self._screen.print(f"[dim]{time.monotonic() - self._started:5.2f} s[/]  ", end="")
        self._screen.print(text, highlight=False, markup=False, soft_wrap=True)

    def _print(self, text: str, style: str = "cyan") -> None:
        for line in text.splitlines():
            self._screen.print(f"         {line}", style=style, highlight=False, markup=False, soft_wrap=True)

    def _apply(self) -> None:
        """Create the Service."""
        kubectl = shutil.which("kubectl")
        self._say("kubectl apply -f -" if kubectl else "no kubectl on this machine: created through the API instead")
        self._print(MANIFEST, style="dim")
        self._print(self._with_kubectl(kubectl) if kubectl else self._by_hand())

    def _with_kubectl(self, program: str) -> str:
        environment = os.environ | {"KUBECONFIG": str(self._directory.kubeconfig), "HOME": str(self._directory.path)}
        result = subprocess.run(
            [program, "apply", "-f", "-"], input=MANIFEST, capture_output=True, text=True, env=environment, check=False
        )
        if result.returncode:
            raise LabError(f"kubectl ended with {result.returncode}: {result.stderr.strip()}")
        return result.stdout.strip()

    def _by_hand(self) -> str:
        api = Api(Access.read(self._directory.kubeconfig), lambda *place: socket.create_connection(place, timeout=5.0))
        created = api.call("POST", SERVICES, yaml.safe_load(MANIFEST))
        api.close()
        return f"service/{created['metadata']['name']} created"

    def _await_shop(self) -> ServiceStatus:
        """Return when it has its addresses and is in force everywhere."""
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE:
            status = ask(self._directory, GetStatus(), Status)
            shop = next((service for service in status.services if service.name == SERVICE), None)
            wanted = 2 * NODES * PODS
            if (
                shop
                and shop.endpoints == wanted
                and all(node.programmed[0] == node.programmed[1] for node in status.nodes)
            ):
                self._say(f"{wanted} endpoints of {SERVICE} are programmed on every node; it answers at")
                self._print("\n".join(shop.addresses), style="green")
                return shop
        raise LabError(f"{SERVICE} was not programmed everywhere within {PATIENCE:.0f} s")

    def _connect(self, shop: ServiceStatus) -> None:
        """From everywhere, through everything."""
        rows, total = [], Counter[str]()
        for client, who in ((caller_name(1), "a pod"), (node_name(2), "a node"), (CLIENT, "outside")):
            for address, port in reachable(shop, client):
                answer = ask(self._directory, Connect(client, address, port, CONNECTIONS // 4), Connected)
                if answer.failures:
                    raise LabError(f"from {client} to {address}:{port}: {answer.failures}")
                total.update(answer.names)
                speed = f"{answer.seconds / (CONNECTIONS // 4) * 1000:.2f} ms each"
                rows.append(
                    (
                        f"{who} ({client})",
                        f"{address} port {port}",
                        str(len(answer.names)),
                        speed,
                        " ".join(answer.peers),
                    )
                )
        self._say(f"{total.total()} connections, none failed:")
        self._print(table(("FROM", "TO", "PODS", "TIME", "CLIENT ADDRESS THE PODS SAW"), rows))
        self._print(bars(total), style="green")
        chance = evenness(total, total.keys())
        self._print(f"a fair choice is at least this uneven in {chance:.0%} of all runs", style="dim")
        if len(total) != NODES * PODS or chance < UNFAIR:
            raise LabError(f"that was no fair choice among {NODES * PODS} pods")

    def _show(self) -> None:
        """What the kernel of a node holds."""
        place = ask(self._directory, Locate(node_name(1)), Place)
        command = ["ip", "netns", "exec", place.namespace, sys.executable, "-m", "nodeagent", "show"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise LabError(f"`nodeagent show` ended with {result.returncode}: {result.stderr.strip()}")
        self._say(f"nodeagent show, on {node_name(1)}")
        self._print(result.stdout)

    def _break(self, kind: str, what: str) -> None:
        """A fault that must not cost a connection."""
        report = self._report(InjectFault(kind, SERVICE, rate=RATE))
        self._say(f"{what}, under load from everywhere, in {report.seconds:.1f} s:")
        self._print(f"{report.attempts - report.failed} of {report.attempts} connections made meanwhile were answered")
        if kind == "kill":
            self._print(f"{report.kept} of {report.held} connections opened before are still answered")
        if report.failed:
            raise LabError(f"{report.failed} connections failed: {dict(report.failures)}")

    def _report(self, request: InjectFault) -> FaultReport:
        with conversation(self._directory, request) as answers:
            for answer in answers:
                if isinstance(answer, FaultReport):
                    return answer
        raise LabError("the lab ended")


def reachable(service: ServiceStatus, client: str) -> Iterator[tuple[str, int]]:
    """Where a client connects to: from outside node ports and load-balancer addresses, from inside ClusterIPs too."""
    for place in service.addresses:
        address, _, port = place.removesuffix("/TCP").rpartition(":")
        address = address.strip("[]")
        if address == "*":
            yield from ((node, int(port)) for node in ("192.168.0.11", "2001:db8::d"))
        elif client != CLIENT or not address.startswith(("10.", "fd00:")):
            yield address, int(port)


def bars(names: Counter[str]) -> str:
    """A line per server: its name, its count, a bar."""
    most = max(names.values(), default=1)
    return "\n".join(f"{name:9}{names[name]:5}  {'█' * round(BAR * names[name] / most)}" for name in sorted(names))


def obstacle() -> str:
    """Why the demo cannot run here; empty when it can."""
    if os.geteuid():
        return "it makes network namespaces: run it as root"
    missing = [program for program in ("ip", "nft", "setpriv", "openssl") if not shutil.which(program)]
    return f"missing programs: {', '.join(missing)}" if missing else ""


def leave(number: int, _: FrameType | None) -> None:
    """A signal as an exception, so that everything is cleaned up on the way out; a second one does not disturb that."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 all went well, 1 it did not (one line on stderr says why), 128 + n ended by signal n."""
    parser = argparse.ArgumentParser(prog="python -m nodeagent.lab.demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agent-option", action="append", default=[], help="one more option of every agent")
    options = parser.parse_args(arguments)
    if reason := obstacle():
        print(f"demo: {reason}", file=sys.stderr)
        return 1
    for number in ENDING:
        signal.signal(number, leave)
    screen = Console()
    started = time.monotonic()
    with TemporaryDirectory(prefix="nodeagent-demo-", ignore_cleanup_errors=True) as path:
        directory = LabDirectory(Path(path), "demo")
        demo = Demo(directory, screen, started)
        settings = Settings("demo", NODES, PODS, ipv6=True, agent_options=tuple(options.agent_option))
        try:
            try:
                start(directory, settings, os.environ, demo.tell)
                demo.run()
            finally:
                left = take_down(directory) and directory.path.exists()
        except LabError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
        except SystemExit as ending:
            print(f"demo: interrupted, everything removed after {time.monotonic() - started:.1f} s", file=sys.stderr)
            return int(ending.code or 0)
    screen.print(
        f"[dim]{time.monotonic() - started:5.2f} s[/]  removed everything: namespaces, links, processes, files"
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

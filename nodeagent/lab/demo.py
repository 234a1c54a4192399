"""A service in half a minute: `nodeagent demo`, as root.

Builds a lab of three nodes, creates a Service from a manifest with kubectl, connects from a pod, from a node and from
outside to every kind of address, replaces all pods and kills an agent under load, and removes everything, also after a
failure or an interrupt.
"""

import argparse
import os
import shutil
import signal
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

from nodeagent.lab import supervisor_messages as messages
from nodeagent.lab.api import Access, Api
from nodeagent.lab.caller import Line, ask, conversation, start, take_down
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.lab_objects import SERVICES
from nodeagent.lab.lab_plan import CLIENT, PROGRAMS, Settings, caller_name, node_name, plan
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.survey import evenness
from nodeagent.lab.report_tables import fault_table, listed_counts, shortcomings, table
from nodeagent.model.addresses import endpoint_text
from nodeagent.runtime.interrupts import prompt_signal_handling

NODES, PODS = 3, 2
CONNECTIONS = 240
RATE = 200.0
PATIENCE = 15.0
BAR = 40
UNFAIR = 1e-6
FAULTS = {
    "rollover": f"all {NODES * PODS} pods are replaced",
    "kill": "an agent is killed with SIGKILL, and started again a second later",
}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SERVICE = "default/shop"
NAMES = ("shop", "shop.default", "shop.default.svc.cluster.local")
CALL = """\
import sys, urllib.request
for name in sys.argv[1:]:
    with urllib.request.urlopen(f"http://{name}/", timeout=30) as answer:
        print(f"http://{name}/".ljust(40), answer.read().split()[0].decode())
"""
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
    """The steps, in order. Each raises LabError if the lab does not do what it should."""

    def __init__(self, directory: LabDirectory, settings: Settings, screen: Console, started: float) -> None:
        self._directory = directory
        self._owners = address_owners(settings)
        self._screen = screen
        self._started = started
        self._connections = 0
        self._failed = 0

    def run(self) -> None:
        """Runs all steps, in a lab that is up."""
        self._apply()
        shop = self._await_shop()
        self._call_by_name()
        self._connect(shop)
        self._show()
        self._break()

    def introduce(self) -> None:
        """Prints what will be shown."""
        self._head(f"{NODES} nodes with an agent each, {NODES * PODS} pods, a client outside: all on this machine")
        self._print(DIAGRAM)

    def conclude(self) -> None:
        """Prints the summary."""
        self.say("everything is removed: namespaces, links, processes, files")
        self._head(f"{self._connections} connections in both families, {self._failed} failed")
        self._print("a lab of your own: nodeagent lab up (docs/lab.md)", style="dim")

    def say_step(self, line: Line) -> None:
        """Prints a step of building."""
        self.say(line.text)

    def say(self, text: str, style: str = "") -> None:
        """Prints a line with the seconds since the start."""
        self._screen.print(f"[dim]{time.monotonic() - self._started:5.2f} s[/]  ", end="")
        self._screen.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def _head(self, text: str) -> None:
        self.say(text, style="bold")

    def _print(self, text: str, style: str = "cyan") -> None:
        for line in text.splitlines():
            self._screen.print(f"         {line}".rstrip(), style=style, highlight=False, markup=False, soft_wrap=True)

    def _apply(self) -> None:
        """Creates the Service."""
        kubectl = shutil.which("kubectl")
        self._head("kubectl apply -f -" if kubectl else "no kubectl on this machine: created through the API instead")
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
        with Api(Access.read(self._directory.kubeconfig)) as api:
            created = api.call("POST", SERVICES, yaml.safe_load(MANIFEST))
        return f"service/{created['metadata']['name']} created"

    def _await_shop(self) -> messages.ServiceStatus:
        """Waits until the Service has its addresses and is programmed everywhere. Returns it."""
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE:
            status = ask(self._directory, messages.GetStatus(), messages.Status)
            shop = next((service for service in status.services if service.name == SERVICE), None)
            wanted = 2 * NODES * PODS
            if (
                shop
                and shop.endpoints == wanted
                and all(node.programmed[0] == node.programmed[1] for node in status.nodes)
            ):
                self.say(f"{wanted} endpoints of {SERVICE} are programmed on every node; it answers at")
                self._print(", ".join(shop.addresses), style="green")
                return shop
        raise LabError(f"{SERVICE} was not programmed everywhere within {PATIENCE:.0f} s")

    def _call_by_name(self) -> None:
        """Connects by name from a pod, with the resolv.conf that Kubernetes writes."""
        place = ask(self._directory, messages.Locate(caller_name(1)), messages.MemberPlace)
        self._head(f"/etc/resolv.conf of the pods; {caller_name(1)} calls {SERVICE} by its names")
        self._print(Path(place.resolv_conf).read_text().rstrip(), style="dim")
        result = subprocess.run(
            place.command([sys.executable, "-c", CALL, *NAMES]), capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise LabError(f"no call by name: {(result.stderr.strip().splitlines() or ['no reason given'])[-1]}")
        self._print(result.stdout.rstrip(), style="green")

    def _connect(self, shop: messages.ServiceStatus) -> None:
        """Connects from everywhere to every address."""
        self._head(f"{CONNECTIONS // 4} connections on each way to {SERVICE}")
        rows, total = [], Counter[str]()
        for client, who in ((caller_name(1), "a pod"), (node_name(2), "a node"), (CLIENT, "outside")):
            for address, port in reachable(shop, client):
                answer = ask(
                    self._directory, messages.Connect(client, address, port, CONNECTIONS // 4), messages.Connected
                )
                self._connections += CONNECTIONS // 4
                self._failed += sum(answer.failures.values())
                if answer.failures:
                    raise LabError(f"from {client} to {endpoint_text(address, port)}: {listed_counts(answer.failures)}")
                total.update(answer.names)
                speed = f"{answer.seconds / (CONNECTIONS // 4) * 1000:.2f} ms"
                seen = " ".join(sorted({self._owners.get(peer, peer) for peer in answer.peers}))
                rows.append((f"{who} ({client})", endpoint_text(address, port), str(len(answer.names)), speed, seen))
        self._print(table(("FROM", "TO", "PODS", "TIME EACH", "CLIENT AS THE PODS SAW IT"), rows, right=(2, 3)))
        self.say(f"{total.total()} connections, none failed; answers by pod:")
        self._print(bars(total), style="green")
        chance = evenness(total, total.keys())
        self._print(f"a fair choice is at least this uneven in {chance:.0%} of all runs", style="dim")
        if len(total) != NODES * PODS or chance < UNFAIR:
            raise LabError(f"the connections were not spread fairly over {NODES * PODS} pods")

    def _show(self) -> None:
        """Prints what the kernel of a node holds."""
        place = ask(self._directory, messages.Locate(node_name(1)), messages.MemberPlace)
        command = ["ip", "netns", "exec", place.namespace, sys.executable, "-m", "nodeagent", "show"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise LabError(f"`nodeagent show` ended with {result.returncode}: {result.stderr.strip()}")
        self._head(f"nodeagent show, on {node_name(1)}")
        self._print(result.stdout)

    def _break(self) -> None:
        """Injects faults that must not cost a connection."""
        self._head(f"{RATE:.0f} connections a second from everywhere, while")
        reports = []
        for kind, what in FAULTS.items():
            self.say(f"  {what}")
            reports.append(self._report(messages.InjectFault(kind, SERVICE, rate=RATE)))
        self.say(f"{sum(report.attempts for report in reports)} connections meanwhile:")
        self._print(fault_table(reports))
        self._connections += sum(report.attempts for report in reports)
        self._failed += sum(report.failed for report in reports)
        if wrong := shortcomings(reports):
            raise LabError(wrong)

    def _report(self, request: messages.InjectFault) -> messages.FaultReport:
        with conversation(self._directory, request) as answers:
            for answer in answers:
                if isinstance(answer, messages.FaultReport):
                    return answer
        raise LabError("the lab ended")


def address_owners(settings: Settings) -> dict[str, str]:
    """Returns the name of the host or pod of each address."""
    topology = plan(settings)
    owners = {address: host.name for host in topology.members for address in host.addresses}
    return owners | {address: node.name for node in topology.nodes for address in node.pod_gateways}


def reachable(service: messages.ServiceStatus, client: str) -> Iterator[tuple[str, int]]:
    """Yields where a client connects to: from outside node ports and load balancers, from inside also ClusterIPs."""
    for place in service.addresses:
        address, _, port = place.removesuffix("/TCP").rpartition(":")
        address = address.strip("[]")
        if address == "*":
            yield from ((node, int(port)) for node in ("192.168.0.11", "2001:db8::d"))
        elif client != CLIENT or not address.startswith(("10.", "fd00:")):
            yield address, int(port)


def bars(names: Counter[str]) -> str:
    """Returns a line for each server: its name, its count, a bar."""
    most = max(names.values(), default=1)
    return "\n".join(f"{name:9}{names[name]:5}  {'█' * round(BAR * names[name] / most)}" for name in sorted(names))


def obstacle() -> str:
    """Returns why the demo cannot run here; empty if it can."""
    if os.geteuid():
        return "it makes network namespaces: run it as root"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    return f"missing programs: {', '.join(missing)}" if missing else ""


def leave(number: int, _: FrameType | None) -> None:
    """Turns a signal into an exception, so that everything is cleaned up; further signals are then ignored."""
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 success, 1 failure (one line on stderr says why), 128 + n after signal n."""
    parser = argparse.ArgumentParser(prog="nodeagent demo", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agent-option", action="append", default=[], help="one more option of every agent")
    options = parser.parse_args(arguments)
    if reason := obstacle():
        print(f"demo: {reason}", file=sys.stderr)
        return 1
    for number in ENDING:
        signal.signal(number, leave)
    screen = Console()
    started = time.monotonic()
    with prompt_signal_handling(), TemporaryDirectory(prefix="nodeagent-demo-", ignore_cleanup_errors=True) as path:
        directory = LabDirectory(Path(path), "demo")
        settings = Settings("demo", NODES, PODS, ipv6=True, agent_options=tuple(options.agent_option))
        demo = Demo(directory, settings, screen, started)
        try:
            try:
                demo.introduce()
                start(directory, settings, os.environ, demo.say_step)
                demo.run()
            finally:
                left = take_down(directory) and directory.path.exists()
        except LabError as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
        except SystemExit as ending:
            print(f"demo: interrupted, everything removed after {time.monotonic() - started:.1f} s", file=sys.stderr)
            return int(ending.code or 0)
    if left:
        print(f"demo: files of the lab are left in {directory.path}", file=sys.stderr)
        return 1
    demo.conclude()
    return 0


if __name__ == "__main__":
    sys.exit(main())

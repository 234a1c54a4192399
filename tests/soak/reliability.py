"""`python -m tests.soak.reliability`: what each fault costs, one after the other, in a lab under load. Needs root.

With `--write FILE` the measured columns of the table in that document are replaced; the rest of it is written by hand.
"""

import argparse
import json
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nodeagent.lab.control_plane import answers
from nodeagent.lab.lab_plan import CLIENT, CLIENT_ADDRESSES, caller_name
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.member import ACTOR
from nodeagent.lab.net.namespace_process import Launcher
from nodeagent.lab.net.network_namespaces import LabError, enter, inside
from nodeagent.lab.net.warm_launcher import modules_of
from tests.harness.worlds.forks import SeparateForkServer
from tests.harness.worlds.power import cut_power, give_power
from tests.soak.__main__ import COMMANDS, DISK_MEGABYTES, small_disk
from tests.soak.costs import Cost, cost_of, write_costs
from tests.soak.machine import machine
from tests.soak.offers import spec_of, targets
from tests.soak.records import Step
from tests.soak.run import Options, Run
from tests.soak.stage import Stage
from tests.soak.witnesses import look_up

CHANGE, CHANGE_CHOICE = "shop-1", 3
AFTERWARDS_SECONDS = 4.0
ENDED_SECONDS = 13.0
"""Until every connection that was open at a fault has ended, or is lost."""
BEFORE_SECONDS, SAVED_SECONDS = 1.5, 14.0
"""Agents have saved their state so long after the lab is up."""
SERVED_WITHIN = 60.0
UPSTREAM_PORTS = (5301, 5302)
FULL_PROGRAM = (sys.executable, "-m", "nodeagent.lab.full_conntrack")
INTERVAL = 0.08


@dataclass(frozen=True, slots=True)
class Trial:
    """step: what the breaker does. special: or a function that breaks something and returns how it is put right, after `seconds`."""

    step: Step | None = None
    special: Callable[["Bench"], Callable[[], None]] | None = None
    seconds: float = 0.0


class Bench:
    """A lab with clients, resolvers outside the cluster, and faults one at a time."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.stage = run.stage
        self.upstream: list[Upstream] = []
        self._began = time.monotonic()

    def measure(self, trial: Trial) -> Cost:
        """Carries out one fault. Returns what it cost."""
        breaker, notes = self.run.breaker, self.run.notes
        breaker.rest(max(BEFORE_SECONDS, self._began + SAVED_SECONDS - time.monotonic()))
        first = len(notes.attempts), len(notes.held), len(notes.lookups)
        others = Others(self.stage)
        breaker.rest(0.5)
        began = time.monotonic()
        if trial.step is not None:
            breaker.carry_out(trial.step)
            breaker.rest(trial.step.seconds)
            undone = time.monotonic()
            breaker.hasten()
        else:
            assert trial.special is not None
            repair = trial.special(self)
            breaker.rest(trial.seconds)
            undone = time.monotonic()
            repair()
        served = self._until_a_change_is_served(undone)
        breaker.undo_all()
        breaker.rest(AFTERWARDS_SECONDS)
        self.stage.delete_service(CHANGE)
        breaker.rest(ENDED_SECONDS)
        return cost_of(
            notes.attempts[first[0] :],
            notes.held[first[1] :],
            notes.lookups[first[2] :],
            began,
            served,
            *others.stop(),
        )

    def _until_a_change_is_served(self, since: float) -> float:
        """Creates a Service. Returns the seconds from `since` until a pod of every node reaches it."""
        self.stage.put_service(
            CHANGE, spec_of(CHANGE_CHOICE) | {"internalTrafficPolicy": "Cluster", "selector": {"app": "echo"}}
        )
        address = next(one for one in targets(self.stage.services[CHANGE], {}) if one.kind == "ClusterIP")
        deadline = time.monotonic() + SERVED_WITHIN
        for number, _ in self.stage.nodes.values():
            while not inside(
                self.stage.world.namespace(caller_name(number)), lambda: reaches(address.address, address.port)
            ):
                self.run.breaker.rest(0.05)
                if time.monotonic() > deadline:
                    raise LabError(f"a Service was not served within {SERVED_WITHIN:.0f} s")
        return time.monotonic() - since


def reaches(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=0.25).close()
    except OSError:
        return False
    return True


class Others:
    """Looks up names outside the cluster from a pod, until `stop`."""

    def __init__(self, stage: Stage) -> None:
        self._namespace = stage.world.namespace(caller_name(1))
        self._server = stage.settings.dns_addresses[0]
        self._ending = threading.Event()
        self._asked = self._failed = 0
        self._thread = threading.Thread(target=self._run, name="names of others", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        enter(self._namespace)
        while not self._ending.wait(0.1):
            self._asked += 1
            try:
                look_up(self._server, f"n{secrets.token_hex(4)}.example.org")
            except OSError:
                self._failed += 1

    def stop(self) -> tuple[int, int]:
        """Returns how many failed, of how many."""
        self._ending.set()
        self._thread.join()
        return self._failed, self._asked


class Upstream:
    """A resolver outside the cluster that knows every name; one that is dead listens and never answers."""

    def __init__(self, namespace: str, port: int) -> None:
        self.dead = False

        def opened() -> socket.socket:
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind((CLIENT_ADDRESSES[0], port))
            return sock

        self._socket = inside(namespace, opened)
        threading.Thread(target=self._run, name=f"resolver {port}", daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                query, peer = self._socket.recvfrom(4096)
                if not self.dead:
                    self._socket.sendto(answer_to(query), peer)

    def stop(self) -> None:
        self._socket.close()


def answer_to(query: bytes) -> bytes:
    """Returns an answer with 192.0.2.77 to a query of one question, without its EDNS."""
    end = query.index(b"\0", 12) + 5
    head = query[:2] + b"\x81\x80\0\1\0\1\0\0\0\0"
    return head + query[12:end] + b"\xc0\x0c\0\1\0\1\0\0\0\x05\0\4\xc0\0\2\x4d"


def delete_interface(bench: Bench) -> Callable[[], None]:
    bench.stage.world.run("node-1", ["ip", "link", "del", "nodeagent0"])
    return lambda: None


def fill_connections(bench: Bench) -> Callable[[], None]:
    filler = bench.stage.start_until("node-1", FULL_PROGRAM, "full", seconds=60.0)
    return lambda: void(filler.stop(seconds=30.0))


def void(_: object) -> None:
    """Returns nothing."""


def kill_upstream(bench: Bench) -> Callable[[], None]:
    bench.upstream[0].dead = True

    def revive() -> None:
        bench.upstream[0].dead = False

    return revive


def reboot(bench: Bench, *, server_gone: bool = False) -> Callable[[], None]:
    """The node loses its power with its agent and all that its kernel knew; then it has power, and its agent is started."""
    stage, node = bench.stage, "node-3"
    assert stage.control is not None
    [server] = stage.control.servers.values()
    breaker = bench.run.breaker
    if server_gone:
        breaker.expect_down(breaker.server_name)
        server.kill()
    breaker.expect_down(node)
    stage.agents[node].signal(signal.SIGSTOP)  # so that it starts no other DNS process
    stage.signal_dns(node, signal.SIGKILL)
    stage.agents[node].kill()
    link = json.loads(stage.world.run(node, ["ip", "-j", "link", "show", "dev", "eth0"]).stdout)[0]["address"]
    cut_power(stage.world, node)

    def start() -> None:
        give_power(stage.world, node)
        stage.world.run(node, ["ip", "link", "set", "dev", "eth0", "address", link])  # a machine keeps its card
        printed = len(stage.agents[node].lines)
        stage.agents[node].restart(Launcher())
        breaker.expect_up(node)
        if server_gone:
            stage.patience.until(lambda: serves(stage, node), "the node serves without a server")
            server.restart(Launcher())
            breaker.expect_up(breaker.server_name)
            stage.patience.until(lambda: answers(stage.api), "the API server")
        stage.patience.until_line(stage.agents[node], " ready: ", "the agent", after=printed)

    return start


def serves(stage: Stage, node: str) -> bool:
    """Whether a pod of the node reaches the Service that always stays."""
    address = next(one for one in stage.offered.targets if one.kind == "ClusterIP")
    number, _ = stage.nodes[node]
    return inside(stage.world.namespace(caller_name(number)), lambda: reaches(address.address, address.port))


TRIALS: Mapping[str, Trial] = {
    "none": Trial(special=lambda _: lambda: None, seconds=1.0),
    "api-gone": Trial(Step("api-kill", seconds=5.0)),
    "api-silent": Trial(Step("api-stop", seconds=5.0)),
    "agent-killed": Trial(Step("agent-kill", "node-1", seconds=2.0)),
    "agent-stopped": Trial(Step("agent-stop", "node-1", seconds=3.0)),
    "agent-updated": Trial(Step("agent-restart", "node-1")),
    "agent-without-descriptors": Trial(Step("agent-descriptors", "node-1", seconds=3.0)),
    "flush-owned": Trial(Step("flush", "node-1")),
    "flush-plain": Trial(Step("flush", "node-2")),
    "interface-deleted": Trial(special=delete_interface, seconds=0.0),
    "conntrack-full": Trial(special=fill_connections, seconds=2.0),
    "dns-killed": Trial(Step("dns-kill", "node-1")),
    "upstream-dead": Trial(special=kill_upstream, seconds=5.0),
    "disk-full": Trial(Step("disk", seconds=3.0)),
    "network-cut": Trial(Step("cut", "node-1", seconds=2.0)),
    "node-rebooted": Trial(special=reboot, seconds=1.0),
    "node-rebooted-alone": Trial(special=lambda bench: reboot(bench, server_gone=True), seconds=1.0),
}
"""Those that change the world most come last."""


@contextmanager
def bench_on(base: Path, fork_server: ForkServer) -> Iterator[Bench]:
    """A lab; its agents keep their state, and ask two resolvers of which the first may die."""
    upstreams = ",".join(f"{CLIENT_ADDRESSES[0]}:{port}" for port in UPSTREAM_PORTS)
    options = Options(
        base, interval=INTERVAL, agent_options=("--dns-upstreams", upstreams), of_nodes=False, snapshots=True
    )
    with Run(options, fork_server, lambda _: None) as run:
        bench = Bench(run)
        bench.upstream = [Upstream(run.stage.world.namespace(CLIENT), port) for port in UPSTREAM_PORTS]
        try:
            yield bench
        finally:
            for upstream in bench.upstream:
                upstream.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.reliability", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", choices=list(TRIALS), action="append", help="only this fault")
    parser.add_argument("--write", type=Path, help="the document whose measured columns are replaced")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    fork_server = SeparateForkServer(ACTOR, *modules_of(*COMMANDS))
    costs: dict[str, Cost] = {}
    try:
        with small_disk(DISK_MEGABYTES) as base, bench_on(base, fork_server) as bench:
            for name in options.only or TRIALS:
                costs[name] = bench.measure(TRIALS[name])
                print(f"{name}: {costs[name].loss}; {costs[name].recovery}", flush=True)
            slow = bench.run.slowest
    finally:
        fork_server.close()
    about = f"{machine()}; three nodes, {time.strftime('%Y-%m-%d', time.gmtime())}; a piece of work took {slow:.1f} times as long as alone"
    print(about)
    if options.write:
        options.write.write_text(write_costs(options.write.read_text(), costs, about))
    return 0


if __name__ == "__main__":
    sys.exit(main())

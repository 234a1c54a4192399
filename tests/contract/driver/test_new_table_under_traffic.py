"""Packets while a table is rebuilt: none goes on untranslated, to the wrong endpoint or with the wrong source.

A client in a namespace of its own sends first packets of connections as fast as it can. A table of the node counts, behind the
translation, what it must never see.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.driver import element_walk
from nodeagent.proxy.dataplane.driver.belief import Belief, Ownership
from nodeagent.proxy.dataplane.driver.commit_plan import Planner
from nodeagent.proxy.dataplane.driver.removal import remove_tables
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.image.delta import Delta
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from tests.contract.driver.conftest import Agent, Kernel
from tests.harness.effort import AT_LENGTH
from tests.harness.kernel_faults import KernelFaults

pytestmark = pytest.mark.kernel

V4, V6 = Family.IPV4, Family.IPV6
TCP = Protocol.TCP
PATIENT = 120.0
REBUILDS = 20 if AT_LENGTH else 1
SERVICES = 6000 if AT_LENGTH else 2000
SENDER = Path(__file__).with_name("sending_syns.py")


@dataclass(frozen=True)
class Addresses:
    family: Family
    node: str
    client: str
    outside: str
    pod: str
    endpoint: str
    vip: str
    guarded: str
    local: str
    ranges: NodeState
    filler: Callable[[int], str]


PLANS = {
    V4: Addresses(
        V4, "192.168.0.2", "192.168.0.1", "192.0.2.7", "10.244.9.9", "10.244.2.2", "10.96.0.10", "198.51.100.2",
        "198.51.100.3", NodeState(("10.96.0.0/16",), ("10.244.0.0/16",), ("192.168.0.2/32", "192.168.9.0/24")),
        lambda n: f"10.96.{1 + n // 250}.{1 + n % 250}",
    ),
    V6: Addresses(
        V6, "2001:db8::2", "2001:db8::1", "2001:db8:9::7", "fd00:244:9::9", "fd00:244:2::2", "fd00:96::10",
        "2001:db8:100::2", "2001:db8:100::3",
        NodeState(("fd00:96::/108",), ("fd00:244::/32",), ("2001:db8::2/128", "2001:db8:77::/64")),
        lambda n: f"fd00:96::1:{n + 1:x}",
    ),
}  # fmt: skip


def states(at: Addresses) -> list[ServiceState]:
    """A node port, a ClusterIP, an address for some sources, one for pods alone, and many others."""
    wide = Route((Backend(at.endpoint, 8080),))
    nobody_here = Route((), Scope.LOCAL)
    key = ObjectKey("default", "web")

    def frontend(kind: FrontendKind, address: str | None, port: int, route: Route, *rest: Any) -> Frontend:
        return Frontend(kind, at.family, address, TCP, port, ServicePortName(key, f"p{port}", TCP), route, *rest)

    balancer = FrontendKind.LOAD_BALANCER
    web = ServiceState(
        key,
        cluster_ips=(at.vip,),
        frontends=(
            frontend(FrontendKind.NODE_PORT, None, 30080, wide, None, True),
            frontend(FrontendKind.CLUSTER_IP, at.vip, 80, wide),
            frontend(balancer, at.guarded, 80, wide, None, True, None, (f"{at.pod}/{at.family.address_length * 8}",)),
            frontend(balancer, at.local, 80, nobody_here, wide),
        ),
    )
    pods = tuple(
        Backend(at.endpoint.rpartition(at.endpoint[-2])[0] + at.endpoint[-2] + f"{n}", 8080) for n in range(20, 30)
    )
    return [
        web,
        *(
            ServiceState(
                ObjectKey("filler", f"s{n}"),
                cluster_ips=(at.filler(n),),
                frontends=(
                    Frontend(
                        FrontendKind.CLUSTER_IP, at.family, at.filler(n), TCP, 80,
                        ServicePortName(ObjectKey("filler", f"s{n}"), "", TCP), Route(pods),
                    ),
                ),
            )
            for n in range(SERVICES)
        ),
    ]  # fmt: skip


def never_seen(at: Addresses) -> dict[str, str]:
    """What must not be met behind the translation, and behind the choice of the source."""
    ip = "ip" if at.family is V4 else "ip6"
    return {
        "a packet to the node port that is not translated": f"{ip} daddr {at.node} tcp dport 30080",
        "one to a ClusterIP that is not": f"{ip} daddr {at.vip} tcp dport 80",
        "one that the source ranges forbid": f"{ip} saddr {at.outside} {ip} daddr {at.endpoint} tcp sport 3000",
        "one from outside to an endpoint elsewhere": f"{ip} saddr {at.outside} {ip} daddr {at.endpoint} tcp sport 4000",
        "a pod's to an address that is not translated": f"{ip} daddr {at.local} tcp sport 5000",
    }


def wrong_sources(at: Addresses) -> dict[str, str]:
    ip = "ip" if at.family is V4 else "ip6"
    return {
        "a client of a node port with its own source": f"tcp sport 1000 {ip} saddr {at.outside}",
        "a pod without it": f"ct original {ip} daddr {at.vip} {ip} saddr != {at.pod}",
    }


class Scene:
    """A node with many services, and a client that sends to some of them."""

    def __init__(self, node: Kernel, client: Kernel, at: Addresses) -> None:
        self.node, self.at = node, at
        self._client = client
        self._lines = [*never_seen(at).items(), *wrong_sources(at).items()]

    def build(self) -> None:
        at, flag = self.at, () if self.at.family is V4 else ("-6",)
        prefix = 24 if at.family is V4 else 64
        pid = self._client.run(threading.get_native_id)
        self._ip("link", "add", "out0", "type", "veth", "peer", "name", "in0", "netns", str(pid))
        for kernel, name, address in ((self.node, "out0", at.node), (self._client, "in0", at.client)):
            for command in (
                ("sysctl", "-qw", f"net.ipv6.conf.{name}.accept_dad=0", "net.ipv4.conf.all.rp_filter=0",
                 f"net.ipv4.conf.{name}.rp_filter=0", "net.ipv4.ip_forward=1", "net.netfilter.nf_conntrack_checksum=0", "net.ipv6.conf.all.forwarding=1"),
                ("ip", "link", "set", "lo", "up"),
                ("ip", "link", "set", name, "up"),
                ("ip", *flag, "addr", "add", f"{address}/{prefix}", "dev", name, *(("nodad",) if flag else ())),
            ):  # fmt: skip
                done = kernel.command(*command)
                assert done.returncode == 0, done.stderr
        self._ip(*flag, "route", "add", "default", "via", at.client)
        done = self._client.command("ip", *flag, "route", "add", "default", "via", at.node)
        assert done.returncode == 0, done.stderr
        never = "; ".join(f"{match} counter drop" for match in never_seen(at).values())
        wrong = "; ".join(f"{match} counter drop" for match in wrong_sources(at).values())
        kind = "ip" if at.family is V4 else "ip6"
        self.node.nft(
            f"table {kind} seen {{ chain translated {{ type filter hook prerouting priority 0; {never}; }}\n"
            f"chain sent {{ type filter hook postrouting priority 300; {wrong}; tcp dport 8080 counter drop; }}; }}"
        )

    def _ip(self, *argv: str) -> None:
        done = self.node.command("ip", *argv)
        assert done.returncode == 0, done.stderr

    @contextmanager
    def traffic(self) -> Iterator[None]:
        at = self.at
        flows = [
            (at.outside, 1000, at.node, 30080),
            (at.pod, 2000, at.vip, 80),
            (at.outside, 3000, at.guarded, 80),
            (at.outside, 4000, at.local, 80),
            (at.pod, 5000, at.local, 80),
        ]
        argv = [sys.executable, str(SENDER), *(",".join(map(str, flow)) for flow in flows)]
        sender = self._client.run(lambda: subprocess.Popen(argv))
        try:
            self.wait_for(2000)
            yield
            assert sender.poll() is None
        finally:
            sender.kill()
            sender.wait()

    def counts(self) -> tuple[dict[str, int], int]:
        """What must not be, by its name, and how many packets went on as they should."""
        kind = "ip" if self.at.family is V4 else "ip6"
        listed = self.node.nft(f"list table {kind} seen")
        numbers = [int(line.split("packets ")[1].split()[0]) for line in listed.splitlines() if "packets " in line]
        return dict(zip((name for name, _ in self._lines), numbers[:-1], strict=True)), numbers[-1]

    def wait_for(self, more: int) -> None:
        """Until so many packets more went on."""
        enough, deadline = self.counts()[1] + more, time.monotonic() + PATIENT
        while self.counts()[1] < enough:
            assert time.monotonic() < deadline, self.counts()
            time.sleep(0.02)


@pytest.fixture(params=Family, ids=lambda family: family.value)
def scene(request: Any, kernel: Kernel) -> Iterator[Scene]:
    client = Kernel(KernelFaults(0, 0.0))
    made = Scene(kernel, client, PLANS[request.param])
    made.build()
    yield made
    client.close()


def start(scene: Scene, ownership: Ownership = Ownership.PLAIN, *, counters: bool = True, names: bool = False) -> Agent:
    options = ProgramOptions(PodDetection.CIDR, counters=counters, names=names)
    return scene.node.start(ownership, scene.at.family, options)


def no_harm(scene: Scene) -> None:
    harm, _ = scene.counts()
    assert not any(harm.values()), harm


def rebuilt_at_once(agent: Agent, at: Addresses) -> Transaction:
    """The whole table as one transaction."""
    driver = agent.driver
    planner = Planner(at.family, driver._specs, driver._options, Ownership.PLAIN)
    plan = planner.plan_new_table(Belief({}, exists=True), driver._desired.image)
    plan.transaction.messages.extend(plan.hooks.messages)
    return plan.transaction


def test_rebuilding_a_table_harms_no_packet(scene: Scene) -> None:
    """By another ownership, other options, and after failures; also one whose rules are rewritten in place."""
    agent = start(scene)
    agent.sync(*states(scene.at), node=scene.at.ranges)
    with scene.traffic():
        for _ in range(REBUILDS):
            for counters, names in ((True, False), (False, False), (False, True)):
                agent.die()
                agent = start(scene, Ownership.OWNED, counters=counters, names=names)
                report = agent.sync(*states(scene.at), node=scene.at.ranges)
                assert report.new_table is not names, "names are rules more in the table that is there"
            agent.driver._failures = 3
            assert agent.sync(node=scene.at.ranges).new_table
            scene.wait_for(100)
        no_harm(scene)
    assert scene.node.nft("list tables").count("nodeagent") == 1, "the standby table is gone"


def test_rebuilding_a_table_in_one_transaction_harms_some_packets(scene: Scene) -> None:
    """The control: what the scene is about can be seen."""
    agent = start(scene)
    agent.sync(*states(scene.at), node=scene.at.ranges)
    anew = rebuilt_at_once(agent, scene.at)
    deadline = time.monotonic() + PATIENT
    with scene.traffic():
        while not any(scene.counts()[0].values()):
            assert time.monotonic() < deadline
            scene.node.run(lambda: agent.socket.commit(anew))


def test_an_audit_and_its_repairs_harm_no_packet(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of other Services an endpoint, a frontend and a range of a map are wrong, and nothing reports it."""
    monkeypatch.setattr(element_walk, "AUDIT_SECONDS", 1e-6)
    monkeypatch.setattr(element_walk, "FEWEST_KEYS", element_walk.MOST_KEYS)
    agent = start(scene)
    agent.sync(*states(scene.at), node=scene.at.ranges)
    belief = agent.driver._belief
    assert belief is not None
    other = list(belief.image[schema.CLUSTER_IPS])[-1]
    with scene.traffic():
        for name in (schema.BACKENDS, schema.FRONTENDS, schema.CLUSTER_IPS):
            key = next(key for key in reversed(list(belief.image[name])) if key.startswith(other))
            change = Transaction(scene.at.family, agent.driver._specs)
            change.write_delta(Delta({}, {name: [key]}))
            scene.node.run(partial(agent.socket.commit, change, agent.driver._others.known()))
            while not agent.changed_by_others():
                continue
            assert agent.sync(node=scene.at.ranges).touched == 1
            scene.wait_for(100)
        no_harm(scene)
    assert len(agent.drifts) == 3


class Killed(Exception):
    pass


class Mortal(Ruleset):
    """The process ends right before one of its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1

    def commit(self, transaction: Transaction, known: int | None = None) -> list[bytes]:
        if self.left == 0:
            raise Killed
        self.left -= 1
        return super().commit(transaction, known)


@pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
def test_an_agent_killed_at_any_step_leaves_a_table_that_serves_and_the_next_one_tidies_up(
    kernel: Any, service: Any, ownership: Ownership
) -> None:
    web = service("web", "10.96.0.10", "10.244.2.2", node_port=30080)
    kernel.start(ownership).sync(web)
    for step in range(1, 20):
        socket = kernel.run(Mortal)
        agent = kernel.start(ownership, socket=socket)
        for before in kernel._agents:
            if before is not agent:
                before.die()
        agent.sync(web)
        socket.left, agent.driver._failures = step, 3
        try:
            agent.sync()
        except Killed:
            pass
        else:
            break
        assert served_by(kernel), f"nobody serves before step {step}"
        agent.die()
        successor = kernel.start(ownership)
        successor.sync(web)
        assert served_by(kernel) == ["nodeagent"]
        assert kernel.nft("list tables").split() == ["table", "ip", "nodeagent"]
        assert kernel.elements(schema.NODEPORTS)
        assert successor.sync().messages == 0
    assert step == 8, "every step was the last one once"
    assert not agent.driver.problems


def served_by(kernel: Any) -> list[str]:
    """The tables that are hooked."""
    hooked = []
    table = ""
    for line in kernel.nft("list chains ip").splitlines():
        if line.startswith("table "):
            table = line.split()[2]
        elif "hook prerouting" in line and table not in hooked:
            hooked.append(table)
    return hooked


def test_a_left_standby_table_is_removed_with_the_other(kernel: Any, service: Any) -> None:
    socket = kernel.run(Mortal)
    agent = kernel.start(socket=socket)
    agent.sync(service("web", "10.96.0.10", "10.244.2.2"))
    socket.left, agent.driver._failures = 3, 3
    with pytest.raises(Killed):
        agent.sync()
    agent.die()
    assert served_by(kernel) == ["nodeagent-standby"]

    remover = kernel.run(Ruleset)
    kernel.run(lambda: remove_tables(remover))
    remover.close()

    assert kernel.nft("list tables") == ""

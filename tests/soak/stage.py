"""The lab of a run: what its objects are now, and how each of them is changed.

One thread uses it. A write that fails is tried again, and meanwhile what is due is done: the API server may be what is broken.
"""

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nodeagent.lab import lab_objects
from nodeagent.lab.api import Access, Api, ApiRefused, Document
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.directory import LabDirectory
from nodeagent.lab.etcd import EtcdCluster
from nodeagent.lab.lab_plan import (
    CLIENT,
    LABELS,
    SERVICE,
    SERVICE_CIDRS,
    Settings,
    api_urls,
    caller_name,
    control_hosts,
    pod_at,
)
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.namespace_process import Launcher
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.topology import UNDERLAY, Pod
from nodeagent.lab.net.warm_launcher import NODEAGENT
from nodeagent.proxy.source.client.api_client import Timeouts
from tests.harness.etcd import PROGRAM as ETCD
from tests.soak.offers import (
    GROUPS,
    PodState,
    is_headless,
    name_answer,
    name_view,
    slices_answer,
    slices_view,
    targets,
    views_of,
    without_nulls,
)
from tests.soak.records import ALIVE, Deviation, End, Leak
from tests.soak.schedule import SLOTS
from tests.soak.truth import Truth
from tests.soak.witnesses import Client, Offered

REUSED_AFTER = 100
"""Pods; before that an address is not given to another one: what is sent again to a pod that ended would reach it."""
GRACE = 600
"""Seconds that a pod may take to end; the run ends it itself, earlier."""
TIMEOUTS = Timeouts(connect=1.0, headers=3.0, body=3.0)
WRITTEN_WITHIN = 90.0
INGRESS_SECONDS = 3.0
TOO_MANY, FAILED = 429, 500
LEAKS = "soak-leaks"
OPENS_OR_CARRIES = ("tcp flags & (fin | rst) == 0x0 tcp flags & (syn | psh) != 0x0", "meta l4proto udp")
"""Not a bare acknowledgement, and not the end of a connection that the tracker has forgotten, which a client whose pod has gone
repeats with its last data: the tracker calls them invalid, and nothing is done about them (docs/semantics.md 70)."""
FLOW_SECONDS = 2
"""How long it is known which connection had such a packet."""
PLAIN_NODES = ("node-2",)
"""Nodes with tables that others can flush, as kernels before 6.9 have them."""
FORGET_SOON = {
    "net/netfilter/nf_conntrack_tcp_timeout_time_wait": "2",
    "net/netfilter/nf_conntrack_tcp_timeout_close": "2",
    "net/netfilter/nf_conntrack_tcp_timeout_last_ack": "5",
    "net/netfilter/nf_conntrack_tcp_timeout_fin_wait": "10",
    "net/netfilter/nf_conntrack_tcp_timeout_syn_sent": "10",
    "net/netfilter/nf_conntrack_tcp_timeout_syn_recv": "10",
    "net/netfilter/nf_conntrack_tcp_timeout_max_retrans": "20",
    "net/netfilter/nf_conntrack_tcp_timeout_unacknowledged": "20",
    "net/netfilter/nf_conntrack_udp_timeout": "2",
    "net/netfilter/nf_conntrack_udp_timeout_stream": "3",
}
"""So that the connection table of a node comes back to what it was within seconds."""


class Stage(LiveCluster):
    """A cluster whose Services and pods come and go. planted: the program of the agents instead of the usual one. clock: the preload
    library that changes clocks, or None. snapshots: whether agents keep their state on disk. etcd: the directory of an etcd of one
    member, or None. tend: does what is due; set by the one who breaks things. upgraded: the nodes whose agent is of another release."""

    def __init__(
        self,
        settings: Settings,
        directory: LabDirectory,
        fork_server: ForkServer,
        *,
        planted: Sequence[str] = (),
        clock: Path | None = None,
        snapshots: bool = False,
        etcd: Path | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(settings, directory, say, fork_server)
        self.tend: Callable[[], None] = lambda: None
        self.offered = Offered()
        self.services: dict[str, Document] = {}
        self.states: dict[str, PodState] = {}
        self.deviations: list[Deviation] = []
        self.leaks: list[Leak] = []
        self.ends: list[End] = []
        self.upgraded: set[str] = set()
        self.truth = Truth(self._views)
        self.clock_file = directory.path / "clock"
        self._files = directory
        self._planted = planted
        self._clock = clock
        self._snapshots = snapshots
        self._gone: deque[Pod] = deque(maxlen=REUSED_AFTER)
        self._leaked: dict[str, int] = {}
        self._looked = time.monotonic()
        if etcd is not None and self.control is not None:
            self.control.etcd = EtcdCluster(str(ETCD), control_hosts(settings), etcd, self.world, self.patience)

    # -- building -----------------------------------------------------------------------------------------------

    def build(self) -> None:
        """Builds all of it; returns when every node serves."""
        self._files.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.set_clock(0)
        self.build_world()
        for node in self.nodes:
            self.world.write_sysctls(node, FORGET_SOON)
        self.world.nft(UNDERLAY, leak_counters(self.nodes, [*self.settings.of_families(SERVICE_CIDRS)]))
        self.start_control_plane()
        self.open_api()
        if self._clock is not None and self.control is not None:
            for host in self.control.hosts:
                self.control.replace_server(host, self._clock_settings())
        self.start_agents()
        self.register()
        with self.truth.change():
            for name, (pod, node) in self.pods.items():
                self.states[name] = PodState(node, pod.addresses, self._label(name))
            self.services[SERVICE] = self._stored(SERVICE, ingress=True)
        self.wait_until_programmed()
        self.wait_until_names_are_answered()
        self.offer()

    def start_agents(self) -> None:
        for name in self.nodes:
            own_start = Launcher() if self._clock is not None or self._planted else None
            self._start_agent(name, own_start)

    def _start_agent(self, node: str, launcher: Launcher | None) -> None:
        environment = {"NODEAGENT_DATAPLANE_TABLE_OWNERSHIP": "plain"} if node in PLAIN_NODES else {}
        environment |= self._clock_settings()
        if self._snapshots:
            environment["NODEAGENT_SOURCE_SNAPSHOT"] = str(self._files.path / f"snapshot-{node}")
        self.agents[node] = self.world.start(node, self.agent_command(node), environment=environment, launcher=launcher)

    def upgrade_agent(self, node: str) -> None:
        """Starts the agent of another release, or again that of this one. That which ran must have ended."""
        self.upgraded ^= {node}
        self._start_agent(node, Launcher())

    def agent_command(self, node: str) -> list[str]:
        command = super().agent_command(node)
        if self._planted:
            command = [*self._planted, *command[len(NODEAGENT) :]]
        return [*command[:2], "tests.soak.other_layout", *command[2:]] if node in self.upgraded else command

    def new_api(self) -> Api:
        inner = Access.read(self._files.inner_kubeconfig)
        return Api(inner.at(*api_urls(self.settings)), self.world.namespace(UNDERLAY), TIMEOUTS)

    def _clock_settings(self) -> dict[str, str]:
        if self._clock is None:
            return {}
        return {"LD_PRELOAD": str(self._clock), "SOAK_CLOCK": str(self.clock_file)}

    def set_clock(self, seconds: int) -> None:
        """Sets the wall clocks of agents and servers so far ahead, at once; without their library nothing happens."""
        descriptor = os.open(self.clock_file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, seconds.to_bytes(8, sys.byteorder, signed=True), 0)
        finally:
            os.close(descriptor)

    # -- looking ------------------------------------------------------------------------------------------------

    def addresses(self) -> Mapping[str, tuple[str, ...]]:
        """The addresses of each node by name."""
        return {name: node.addresses for name, (_, node) in self.nodes.items()}

    def clients(self) -> list[Client]:
        """The hosts that connect."""
        found = [Client(CLIENT, self.world.namespace(CLIENT))]
        for name, (number, _) in self.nodes.items():
            found.append(Client(caller_name(number), self.world.namespace(caller_name(number)), name))
            found.append(Client(name, self.world.namespace(name), name))
        return found

    def _views(self) -> Iterator[tuple[str, str]]:
        for name, pod in self.states.items():
            yield ALIVE, name
            yield f"home@{pod.node}", name
        for name, service in self.services.items():
            yield slices_view(name), slices_answer(service, self.states)
            yield from views_of(service, self.states, self.addresses())
        for name in (SERVICE, *SLOTS):
            yield name_view(name), name_answer(self.services.get(name), self.states)

    def offer(self) -> None:
        """Clients connect to what exists now."""
        addresses = self.addresses()
        self.offered.targets = tuple(one for each in self.services.values() for one in targets(each, addresses))
        self.offered.names = (SERVICE, *SLOTS)

    def count_leaks(self) -> None:
        """Writes down which nodes have sent packets to ClusterIPs since the last time."""
        now = time.monotonic()
        listed = json.loads(self.world.run(UNDERLAY, ["nft", "-j", "list", "table", "bridge", LEAKS]).stdout)
        counts: dict[str, int] = {}
        flows: list[str] = []
        for entry in listed["nftables"]:
            if "set" in entry:
                flows += (" ".join(map(str, one["elem"]["val"]["concat"])) for one in entry["set"].get("elem", ()))
            if "rule" in entry:
                [packets] = [one["counter"]["packets"] for one in entry["rule"]["expr"] if "counter" in one]
                counts[entry["rule"]["comment"]] = counts.get(entry["rule"]["comment"], 0) + packets
        for node, packets in counts.items():
            if more := packets - self._leaked.get(node, 0):
                self.leaks.append(Leak(self._looked, now, node, more, tuple(flows)))
        self._leaked, self._looked = counts, now

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, send: Callable[[], object]) -> None:
        """Sends a request until it has succeeded. Raises LabError if it is refused, or for too long not answered."""
        deadline = time.monotonic() + WRITTEN_WITHIN
        while True:
            try:
                send()
            except ApiRefused as refusal:
                if refusal.status < FAILED and refusal.status != TOO_MANY:
                    raise
                error: LabError = refusal
            except LabError as failure:
                error = failure
            else:
                return
            if time.monotonic() > deadline:
                raise LabError(f"no write for {WRITTEN_WITHIN:.0f} s: {error}") from error
            self.tend()
            time.sleep(0.1)

    def _stored(self, name: str, *, ingress: bool) -> Document:
        """Returns a Service as the server has it. ingress: waits a moment for its load-balancer address, if it gets one."""
        found: list[Document] = []
        deadline = time.monotonic() + INGRESS_SECONDS
        while True:
            self.write(lambda: found.append(self.api.call("GET", f"{lab_objects.SERVICES}/{name}")))
            service = found[-1]
            if not ingress or service["spec"]["type"] != "LoadBalancer" or time.monotonic() > deadline:
                return service
            if len(service["status"].get("loadBalancer", {}).get("ingress") or []) == len(
                service["spec"]["ipFamilies"]
            ):
                return service
            self.tend()
            time.sleep(0.05)

    def put_service(self, name: str, spec: Document) -> None:
        """Creates or changes a Service. One that becomes headless, or is no longer, is created anew."""
        old = self.services.get(name)
        if old is not None and is_headless(old) != (spec.get("clusterIP") == "None"):
            self.delete_service(name)
            old = None
        path = f"{lab_objects.SERVICES}/{name}"

        def create() -> None:
            body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": without_nulls(spec)}
            self.api.create(lab_objects.SERVICES, body)

        def change() -> None:
            self.api.call("PATCH", path, {"spec": spec}, content_type=lab_objects.MERGE_PATCH)

        with self.truth.change():
            self.write(create if old is None else change)
            self.services[name] = self._stored(name, ingress=True)
        self.offer()

    def delete_service(self, name: str) -> None:
        """Deletes a Service, if it exists."""
        if name not in self.services:
            return
        kept = [one for key, each in self.services.items() if key != name for one in targets(each, self.addresses())]
        self.offered.targets = tuple(kept)
        with self.truth.change():
            self.write(lambda: self.api.delete(f"{lab_objects.SERVICES}/{name}"))
            del self.services[name]

    # -- pods ---------------------------------------------------------------------------------------------------

    def _label(self, name: str) -> str:
        """Gives a pod the label of a group. Returns the group."""
        group = GROUPS[int(name.rpartition("-")[2]) % len(GROUPS)]
        self._patch_pod(name, {"metadata": {"labels": {"group": group}}})
        return group

    def _patch_pod(self, name: str, body: Document, below: str = "") -> None:
        path = f"{lab_objects.PODS}/{name}{below}"
        self.write(lambda: self.api.call("PATCH", path, body, content_type=lab_objects.MERGE_PATCH))

    def begin_pod(self, node: str) -> str:
        """Adds a pod to a node. Returns its name."""
        number, home = self.nodes[node]
        self._last_number[node] += 1
        there = [pod for pod, _ in self.pods.values()]
        taken = frozenset(address for pod in (*there, *self._gone) for address in pod.addresses)
        pod = pod_at(self.settings, number, self._last_number[node], taken)
        self.world.add_pod(home.name, pod)
        with self._files.namespaces.open("a") as file:
            file.write(f"\n{self.world.namespace(pod.name)}")
        self._serve(pod)
        self.pods[pod.name] = (pod, node)
        with self.truth.change():
            self.write(lambda: self.registration.add_pod(pod, home))
            self.states[pod.name] = PodState(node, pod.addresses, self._label(pod.name))
        return pod.name

    def terminate(self, name: str) -> None:
        """Begins the deletion of a pod: it goes on answering."""
        with self.truth.change():
            self.write(lambda: self.begin_deletion(name, GRACE))
            self.states[name] = replace(self.states[name], terminating=True)

    def end_pod(self, name: str) -> None:
        """Deletes a pod, then ends its program."""
        state = self.states[name]
        with self.truth.change():
            self.states[name] = replace(state, joined=False)
            self.write(lambda: self.api.delete(f"{lab_objects.PODS}/{name}", {"gracePeriodSeconds": 0}))
        with self.truth.change():
            for server in self._servers.pop(name):
                server.stop()
            self.world.remove_pod(name)
            self._gone.append(self.pods.pop(name)[0])
            del self.states[name]

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Says whether a pod is ready; its program answers all the same."""
        status = lab_objects.running_status(self.pods[name][0], "", self._now())["status"]
        conditions = [
            one | {"status": "True" if ready else "False"} for one in status["conditions"] if one["type"] == "Ready"
        ]
        others = [one for one in status["conditions"] if one["type"] != "Ready"]
        with self.truth.change():
            self._patch_pod(name, {"status": {"conditions": [*others, *conditions]}}, "/status")
            self.states[name] = replace(self.states[name], ready=ready)

    def set_joined(self, name: str, *, joined: bool) -> None:
        """Gives a pod the label that Services select, or takes it."""
        with self.truth.change():
            self._patch_pod(name, {"metadata": {"labels": {"app": LABELS["app"] if joined else "none"}}})
            self.states[name] = replace(self.states[name], joined=joined)

    @staticmethod
    def _now() -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    # -- processes ----------------------------------------------------------------------------------------------

    def server_pid(self) -> int:
        """The pid of the API server."""
        assert self.control is not None
        [server] = self.control.servers.values()
        return server.pid

    def signal_dns(self, node: str, number: signal.Signals) -> None:
        """Sends a signal to a node's DNS process, if there is one."""
        try:
            os.kill(self.dns_process(node), number)
        except (ProcessLookupError, LabError):
            return


def leak_counters(nodes: Iterator[str] | Mapping[str, object], cidrs: Sequence[str]) -> str:
    """Returns nft commands that count packets of each node to these ranges, where they enter the network between the nodes."""
    lines = [f"table bridge {LEAKS} {{"]
    for family in ("ip", "ip6"):
        flow = f"{family} saddr . th sport . {family} daddr . th dport . meta l4proto"
        lines.append(
            f"set {family}-flows {{ typeof {flow}; flags dynamic,timeout; timeout {FLOW_SECONDS}s; size 1024; }}"
        )
    lines.append("chain seen { type filter hook prerouting priority -300;")
    for node in nodes:
        for cidr in cidrs:
            family = "ip6" if ":" in cidr else "ip"
            flow = f"{family} saddr . th sport . {family} daddr . th dport . meta l4proto"
            lines += [
                f'iifname "{node}" {family} daddr {cidr} {what} counter update @{family}-flows {{ {flow} }} comment "{node}";'
                for what in OPENS_OR_CARRIES
            ]
    return "\n".join([*lines, "}\n}\n"])

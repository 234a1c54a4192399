"""Builds a topology out of network namespaces and removes it."""

import atexit
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from nodeagent.lab.net import bridge_wiring, pod_wiring, wiring
from nodeagent.lab.net.fork_server import ForkServer
from nodeagent.lab.net.member import ACTOR, Member
from nodeagent.lab.net.namespace_process import AgentProcess, Launcher
from nodeagent.lab.net.network_namespaces import (
    LabError,
    create_namespaces,
    has_br_netfilter,
    namespace_name,
    remove_namespace,
    run_ip,
    sweep,
    write_sysctls,
)
from nodeagent.lab.net.topology import UNDERLAY, Pod, Topology, check_name, check_pod
from nodeagent.model.addresses import Family

Plan = Callable[[Topology, pod_wiring.NamespaceOf], list[wiring.Step]]
"""Returns the steps that join the members, in the order in which they must be done."""


class World:
    """A cluster on this machine, from entering the context to leaving it; any number may exist at the same time.
    Members are found by name: ``world["echo-1-1"].serve(8080)``; `underlay` joins them, as `plan` says. Worlds that are built
    one after the other can share a fork server that has imported `program`; `launcher` starts programs. Raises LabError if
    the machine lacks something (root, `ip`), and ValueError for an invalid topology."""

    program = ACTOR
    """The module of the members' processes."""

    def __init__(
        self,
        topology: Topology,
        plan: Plan = bridge_wiring.plan,
        *,
        fork_server: ForkServer | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        self.topology = topology
        self._plan = plan
        self._launcher = launcher or Launcher()
        self._fork_server = fork_server
        self.topology.check()
        self._nodes = {node.name: node for node in self.topology.nodes}
        self._token = secrets.token_hex(3)
        self._namespaces: dict[str, str] = {}
        self._members: dict[str, Member] = {}
        self._processes: list[AgentProcess] = []

    def __enter__(self) -> Self:
        sweep()
        atexit.register(self.close)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, member: str) -> Member:
        return self._members[member]

    def namespace(self, member: str) -> str:
        """Returns the name of the member's namespace, for ``ip netns exec``."""
        return self._namespaces[member]

    @property
    def actors(self) -> tuple[int, ...]:
        """The pids of the members' actors."""
        return tuple(member.actor for member in self._members.values())

    def _build(self) -> None:
        forwarding = {UNDERLAY, *self._nodes}
        addresses: dict[str, tuple[str, ...]] = {UNDERLAY: (), **self.topology.addresses}
        self._create(list(addresses))
        for name, host in addresses.items():
            self._members[name] = self._member(name, host)
        for name, namespace in self._namespaces.items():
            write_sysctls(namespace, wiring.QUIET | (wiring.FORWARDING if name in forwarding else {}))
        for node in self.topology.nodes:
            if node.pod_bridge:
                if not has_br_netfilter():
                    raise LabError(f"pods of {node.name} cannot be behind a bridge: this kernel has no br_netfilter")
                write_sysctls(self._namespaces[node.name], pod_wiring.BRIDGE_SETTINGS)
        for step in self._plan(self.topology, self._namespaces.__getitem__):
            self._take(step)

    def _take(self, step: wiring.Step) -> None:
        options = ["-6"] if step.family is Family.IPV6 else []
        run_ip([*options, "-n", self._namespaces[step.member]], step.lines)

    def _member(self, name: str, addresses: tuple[str, ...]) -> Member:
        assert self._fork_server is not None, "a world that is built has one"
        return Member(name, self._namespaces[name], addresses, self._fork_server, self.program)

    def _create(self, members: Sequence[str]) -> None:
        names = {member: namespace_name(os.getpid(), self._token, member) for member in members}
        self._namespaces |= names
        create_namespaces(names.values())

    def add_pod(self, node: str, pod: Pod) -> Member:
        """Adds a pod behind a node; it is reachable on return. Raises ValueError, LabError."""
        check_name(pod.name)
        check_pod(self._nodes[node], pod)
        if pod.name in self._namespaces:
            raise ValueError(f"{pod.name} exists")
        self._create([pod.name])
        namespace = self._namespaces[pod.name]
        self._members[pod.name] = self._member(pod.name, pod.addresses)
        write_sysctls(namespace, wiring.QUIET)
        home = self._nodes[node]
        run_ip(["-n", self._namespaces[node]], tuple(pod_wiring.node_side(home, pod, namespace)))
        run_ip(["-n", namespace], tuple(pod_wiring.pod_side(home, pod)))
        return self._members[pod.name]

    def remove_pod(self, name: str) -> None:
        """Removes a pod as in a power failure: link, routes and processes vanish, no connection is closed."""
        member = self._members.pop(name)
        run_ip(["-n", member.namespace], ["link del eth0"])
        remove_namespace(self._namespaces.pop(name))
        member.close()
        member.wait()

    def run(
        self, member: str, argv: Sequence[str], *, stdin: str = "", check: bool = True, timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a member's namespace to its end. Raises LabError if it fails, unless `check` is off."""
        result = self._launcher.run(self._namespaces[member], argv, stdin=stdin, timeout=timeout)
        if check and result.returncode:
            raise LabError(f"{' '.join(argv)} in {member} ended with {result.returncode}: {result.stderr.strip()}")
        return result

    def nft(self, member: str, text: str) -> str:
        """Applies nft commands in a member's namespace; returns their output. Raises LabError."""
        return self.run(member, ["nft", "-f", "-"], stdin=text).stdout

    def write_sysctls(self, member: str, values: Mapping[str, str]) -> None:
        """Sets sysctls (``net/ipv4/icmp_ratelimit``) in a member's namespace only. Raises OSError."""
        write_sysctls(self._namespaces[member], values)

    def start(
        self,
        member: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        launcher: Launcher | None = None,
    ) -> AgentProcess:
        """Starts a program in a member's namespace; it ends with the world at the latest. launcher: not the usual one."""
        launcher = launcher or self._launcher
        process = AgentProcess(self._namespaces[member], argv, environment=environment, launcher=launcher)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Kills what was started, removes every namespace. May be called twice."""
        for process in self._processes:
            process.kill()
        for member in self._members.values():
            member.close()
        for namespace in self._namespaces.values():
            remove_namespace(namespace)
        for member in self._members.values():
            member.wait()
        self._processes, self._members, self._namespaces = [], {}, {}
        atexit.unregister(self.close)

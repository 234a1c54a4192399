"""Hosts for members of etcd: a network namespace each, that can be cut off, and one from which clients reach them all."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nodeagent.lab.net.network_namespaces import create_namespaces, namespace_name, remove_namespace, run_ip

CLIENT_PORT, PEER_PORT = 2379, 2380
_TABLE = "cut"


@dataclass(frozen=True)
class Host:
    """One of them: the namespace's name, and its address."""

    namespace: str
    address: str

    @property
    def prefix(self) -> list[str]:
        """What runs a command there; the process is the command's own."""
        return ["ip", "netns", "exec", self.namespace]

    def cut(self, *, peers_only: bool) -> None:
        """Packets from and to other hosts are dropped: all, or those between members."""
        rule = f"tcp dport {PEER_PORT} drop; tcp sport {PEER_PORT} drop" if peers_only else "meta l4proto tcp drop"
        chains = "\n".join(
            f"chain {hook} {{ type filter hook {hook} priority 0; {device} lo accept; {rule}; }}"
            for hook, device in (("input", "iifname"), ("output", "oifname"))
        )
        self._nft(f"table inet {_TABLE} {{\n{chains}\n}}")

    def heal(self) -> None:
        """As if it had not been cut off."""
        self._nft(f"delete table inet {_TABLE}")

    def _nft(self, text: str) -> None:
        subprocess.run([*self.prefix, "nft", "-f", "-"], input=text, text=True, check=True, capture_output=True)


@dataclass(frozen=True)
class Hosts:
    """clients: the namespace that reaches the members."""

    clients: str
    members: list[Host]


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """They are joined by a bridge. Processes in them have to be ended before the block is left."""
    world = secrets.token_hex(3)
    clients, *members = (
        namespace_name(os.getpid(), world, name) for name in ("clients", *(f"etcd-{n}" for n in range(count)))
    )
    made = Hosts(clients, [Host(name, f"192.0.2.{number}") for number, name in enumerate(members, 1)])
    try:
        create_namespaces([clients, *members])
        lines = ["link set lo up", "link add br0 type bridge", "addr add 192.0.2.254/24 dev br0", "link set br0 up"]
        for number, host in enumerate(made.members):
            lines += [
                f"link add etcd-{number} type veth peer name eth0 netns {host.namespace}",
                f"link set etcd-{number} master br0 up",
            ]
        run_ip(["-n", clients], lines)
        for host in made.members:
            run_ip(
                ["-n", host.namespace], ["link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up"]
            )
        yield made
    finally:
        for name in (clients, *members):
            remove_namespace(name)

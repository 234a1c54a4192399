"""Lost packets, as the kernel of a client counts them: a busy machine makes a connection late, and resends nothing."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.harness.worlds.world import World

PATIENT = 10.0
"""Seconds for one connection. A lost SYN is resent after one second (net/ipv4/tcp_input.c), so that it is seen here
whatever the machine does besides."""


def resent_syns(world: World, client: str) -> int:
    """SYN and SYN-ACK packets that a member has sent again since its namespace exists (TcpExt of proc_pid_net(5))."""
    lines = world.run(client, ["cat", "/proc/net/netstat"]).stdout.splitlines()
    names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
    return int(values[names.index("TCPSynRetrans")])


@contextmanager
def nothing_resent(world: World, clients: Iterable[str]) -> Iterator[None]:
    """While the block lasts no first packet of a TCP connection of these members is lost, nor its answer."""
    before = {client: resent_syns(world, client) for client in clients}
    yield
    resent = {client: resent_syns(world, client) - count for client, count in before.items()}
    assert not any(resent.values()), f"sent again, by member: {resent}"

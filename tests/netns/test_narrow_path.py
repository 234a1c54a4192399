"""A link on the way that is narrower than both ends: the node's own sockets learn of it at once, also through a ClusterIP."""

import errno
import fcntl
import socket
import struct
import termios
import time

import pytest

from nodeagent.lab.net.namespace_process import PATIENCE
from nodeagent.lab.net.network_namespaces import inside
from nodeagent.model.addresses import Family, Protocol
from tests.harness.cluster import HTTP, NODE, TARGET_PORT, WITH_POD_CIDRS, Cluster, cluster_ips, of_family
from tests.harness.objects import service_port
from tests.harness.worlds.process import AgentProcess

WIDTH = 1400
PORTS = (*HTTP, service_port(80, Protocol.UDP, name="datagrams"))
FOR_DATAGRAMS, FOR_STREAMS = cluster_ips(1), cluster_ips(2)
"""One each: the kernel remembers for ten minutes what a socket learned of an address."""

MTU_OPTION = {Family.IPV4: (socket.IPPROTO_IP, 14), Family.IPV6: (socket.IPPROTO_IPV6, 24)}
"""IP_MTU, IPV6_MTU (linux/in.h, in6.h)."""

FEW_TIMEOUTS = 4
"""In a row. Who learns nothing sends the same again five times, after 6 s in all, before the kernel asks the routes again
(tcp_retries1)."""

FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)


@pytest.fixture(scope="module")
def agent(cluster: Cluster) -> AgentProcess:
    """An agent on a node that does not know how narrow the other node's uplink is; nor does the pod behind that."""
    for member, interface in (("underlay", "node-b"), ("node-b", "eth0")):
        cluster.world.run(member, ["ip", "link", "set", interface, "mtu", str(WIDTH)])
    for protocol in (Protocol.TCP, Protocol.UDP):
        cluster.world["far-0"].serve(TARGET_PORT, protocol)
    cluster.expose("datagrams", *FOR_DATAGRAMS, pods=["far-0"], ports=PORTS)
    cluster.expose("streams", *FOR_STREAMS, pods=["far-0"], ports=PORTS)
    return cluster.start_agent(*WITH_POD_CIDRS)


@FAMILIES
def test_a_connected_socket_learns_the_mtu_of_the_path(cluster: Cluster, agent: AgentProcess, family: Family) -> None:
    def learned() -> int:
        with socket.socket(family.socket_family, socket.SOCK_DGRAM) as sender:
            sender.connect((of_family(family, FOR_DATAGRAMS), 80))
            refused, ends = 0, time.monotonic() + PATIENCE
            while not refused:
                assert time.monotonic() < ends, "no router said that the way is narrow"
                refused = error_of(sender, bytes(WIDTH + 30))
                time.sleep(0.01)
            assert refused == errno.EMSGSIZE
            return sender.getsockopt(*MTU_OPTION[family])

    assert inside(cluster.world.namespace(NODE), learned) == WIDTH


@FAMILIES
def test_a_connection_does_not_stand_still(cluster: Cluster, agent: AgentProcess, family: Family) -> None:
    def send() -> int:
        most = 0
        with socket.create_connection((of_family(family, FOR_STREAMS), 80), timeout=PATIENCE) as sender:
            sender.sendall(bytes(20 * WIDTH))
            ends = time.monotonic() + PATIENCE
            while not_acknowledged(sender):
                assert time.monotonic() < ends
                most = max(most, timeouts_in_a_row(sender))
                time.sleep(0.01)
        return most

    assert inside(cluster.world.namespace(NODE), send) < FEW_TIMEOUTS


def error_of(sender: socket.socket, datagram: bytes) -> int:
    """The errno with which the kernel refuses to send, 0 when it sends."""
    try:
        sender.send(datagram)
    except OSError as error:
        return error.errno or 0
    return 0


def not_acknowledged(sender: socket.socket) -> int:
    """Bytes that the other end has not acknowledged."""
    return int(struct.unpack("=i", fcntl.ioctl(sender, termios.TIOCOUTQ, bytes(4)))[0])


def timeouts_in_a_row(sender: socket.socket) -> int:
    """How often the same was sent again because nothing came (tcpi_retransmits, linux/tcp.h)."""
    return sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[2]

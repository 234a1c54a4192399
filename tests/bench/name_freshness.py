"""How soon a change is in the answers: `make bench-names`, as root.

An EndpointSlice of a headless Service is changed at the project's API server, again and again. Two look on from the node of
an agent: a watcher of the same slices, and a client that asks the DNS process for the Service all the time. Each row is the
time from the one to the other, in milliseconds; the time from the event may be negative, where the client saw it before
the watcher did. Both have a processor to share with everything else here, the API server and the agent included: what agent and
DNS process ran for each change (the latter with the client's questions, some 50), and waited until they could, is printed.
"""

import argparse
import http.client
import json
import os
import random
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import dns.message

from nodeagent.lab.api import Access
from nodeagent.lab.net.network_namespaces import LabError, enter, inside
from nodeagent.proxy.source.client.tls import TlsContexts
from tests.harness.api_cluster import ApiCluster, controlled_topology
from tests.harness.cluster import NODE
from tests.harness.worlds.world import World

SERVER = "169.254.20.10"
NAME = "fresh.default.svc.cluster.local."
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
PATIENCE_SECONDS = 30.0
BETWEEN_SECONDS = 0.0005
"""Between an answer and the next question: what is measured shall have a processor."""
SOURCE = Path(__file__).name


class Seen:
    """When each address was seen first, on the clock of time.perf_counter."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._changed = threading.Condition()

    def note(self, address: str) -> None:
        now = time.perf_counter()
        with self._changed:
            if self._first.setdefault(address, now) == now:
                self._changed.notify_all()

    def wait_for(self, address: str) -> float:
        """When that was. Raises LabError when it is not within the patience."""
        with self._changed:
            if not self._changed.wait_for(lambda: address in self._first, PATIENCE_SECONDS):
                raise LabError(f"{address} was not seen within {PATIENCE_SECONDS:.0f} s")
            return self._first[address]


def watch(cluster: ApiCluster, seen: Seen, stack: ExitStack) -> None:
    """Follow the slices from the node until the stack unwinds."""
    access = Access.read(cluster.kubeconfig)
    credential = access.credential()
    plain = inside(cluster.world.namespace(NODE), lambda: socket.create_connection(access.place))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    context = TlsContexts(access.cluster.trust).context(credential.client_certificate)
    sock = context.wrap_socket(plain, server_hostname=access.server_name)
    sock.sendall(
        f"GET {SLICES}?watch=1 HTTP/1.1\r\nHost: {access.place[0]}\r\nAuthorization: {credential.authorization}\r\n\r\n".encode()
    )
    response = http.client.HTTPResponse(sock)
    response.begin()

    def follow() -> None:
        try:
            for line in response:
                for endpoint in json.loads(line)["object"].get("endpoints") or ():
                    seen.note(endpoint["addresses"][0])
        except (OSError, ValueError, AttributeError):
            return  # the end was called

    thread = threading.Thread(target=follow, name="watcher")
    thread.start()
    stack.callback(thread.join)
    stack.callback(sock.shutdown, socket.SHUT_RDWR)


def keep_asking(cluster: ApiCluster, seen: Seen, stack: ExitStack) -> None:
    """Ask from the node until the stack unwinds."""
    ending = threading.Event()
    query = dns.message.make_query(NAME, "A").to_wire()

    def ask() -> None:
        enter(cluster.world.namespace(NODE))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)
            sock.connect((SERVER, 53))
            last = b""
            while not ending.wait(BETWEEN_SECONDS):
                try:
                    sock.send(query)
                    reply = sock.recv(4096)
                except OSError:
                    continue
                if reply != last:
                    last = reply
                    for rrset in dns.message.from_wire(reply).answer:
                        seen.note(rrset[0].to_text())

    thread = threading.Thread(target=ask, name="client")
    thread.start()
    stack.callback(thread.join)
    stack.callback(ending.set)


def measure(cluster: ApiCluster, changes: int) -> dict[str, list[float]]:
    """Milliseconds, by what was measured."""
    service = {"clusterIP": "None", "ports": [{"port": 80}]}
    cluster.api.create("/api/v1/namespaces/default/services", {"metadata": {"name": "fresh"}, "spec": service})

    def endpoints(number: int) -> tuple[str, list[dict[str, object]]]:
        address = f"10.200.{number >> 8}.{number & 255}"
        return address, [{"addresses": [address], "conditions": {"ready": True}}]

    cluster.api.create(
        SLICES,
        {
            "metadata": {"name": "fresh-1", "labels": {"kubernetes.io/service-name": "fresh"}},
            "addressType": "IPv4",
            "endpoints": endpoints(1)[1],
            "ports": [{"port": 80}],
        },
    )
    events, answers = Seen(), Seen()
    rows: dict[str, list[float]] = {"write begun -> event": [], "event -> answer": [], "write begun -> answer": []}
    with ExitStack() as stack:
        watch(cluster, events, stack)
        keep_asking(cluster, answers, stack)
        answers.wait_for(endpoints(1)[0])
        for number in range(2, changes + 2):
            address, listed = endpoints(number)
            time.sleep(random.uniform(0, 0.02))
            begun = time.perf_counter()
            cluster.api.merge(f"{SLICES}/fresh-1", {"endpoints": listed})
            event, answer = events.wait_for(address), answers.wait_for(address)
            for row, seconds in zip(rows, (event - begun, answer - event, answer - begun), strict=True):
                rows[row].append(1000 * seconds)
    return rows


def dns_process(cluster: ApiCluster) -> int:
    """The pid that the agent wrote into its log."""
    found = re.search(r"started a DNS process pid=(\d+)", cluster.agent.wait_for_line("started a DNS process"))
    assert found
    return int(found[1])


class Usage:
    """What processes have used of the processors since this was made: nanoseconds they ran, and waited to run."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begun = self._now()

    def per(self, changes: int) -> tuple[float, float]:
        """Milliseconds for each change."""
        ran, waited = (now - before for now, before in zip(self._now(), self._begun, strict=True))
        return ran / changes / 1e6, waited / changes / 1e6

    def _now(self) -> tuple[int, int]:
        """See Documentation/scheduler/sched-stats.rst of the kernel."""
        ran, waited, _ = Path(f"/proc/{self._pid}/schedstat").read_text().split()
        return int(ran), int(waited)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=500)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print(f"{SOURCE}: needs root", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory, World(controlled_topology()) as world:
        cluster = ApiCluster(world, Path(directory))
        cluster.start_server()
        cluster.declare_nodes()
        cluster.start_agent("--dns", "--dns-listen", SERVER, "--dns-upstreams", "127.0.0.1:9")
        try:
            usage = {"agent": Usage(cluster.agent.pid), "DNS process": Usage(dns_process(cluster))}
            rows = measure(cluster, arguments.changes)
            used = {who: one.per(arguments.changes) for who, one in usage.items()}
        finally:
            cluster.stop_agent()
            world.run(NODE, [sys.executable, "-m", "nodeagent", "cleanup"])
    print(f"{'milliseconds':<24} {'median':>8} {'p99':>8} {'most':>8}")
    for row, times in rows.items():
        p99 = statistics.quantiles(times, n=100)[98]
        print(f"{row:<24} {statistics.median(times):>8.2f} {p99:>8.2f} {max(times):>8.2f}")
    print(f"{'ms of a processor per change':<28} {'ran':>8} {'waited':>8}")
    for who, (ran, waited) in used.items():
        print(f"{who:<28} {ran:>8.2f} {waited:>8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

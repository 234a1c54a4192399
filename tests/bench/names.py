"""How fast names are answered, beside unbound with the same names as local data: `make bench-names`.

Both serve 10,000 Services, half of them headless with 10 endpoints each, from one process on loopback; dnsperf asks them in
turns, so that other work on the machine meets both alike. Needs dnsperf and unbound (Debian packages of these names).

A row: queries a second (median of the turns, best), processor time of the server for each query (median), how long another client
waits for answers while dnsperf asks half as often as that (median and all but one in a hundred), and its memory. Exits with 1 when a query costs more than `--most` times unbound's processor time.
"""

import argparse
import asyncio
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path

import dns.message
import dns.rdatatype

from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    Node,
    ObjectMeta,
    Service,
    ServiceCIDR,
    ServicePort,
    ServiceSpec,
)
from nodeagent.names.feed.dns_supervisor import Supervisor
from nodeagent.names.feed.feed_messages import Report, Settings
from nodeagent.names.feed.feeder import Feeder
from nodeagent.names.feed.sockets import ListenAddress

ADDRESS = "127.0.0.1"
READY_SECONDS = 60.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
NAMES_ASKED = 50_000
PROBES_A_SECOND = 500
PROBE_SECONDS = 5.0


class Objects:
    """`services` Services, every second one headless, with `endpoints` endpoints each."""

    def __init__(self, services: int, endpoints: int) -> None:
        self.node: Node | None = None
        self.service_cidrs: tuple[ServiceCIDR, ...] = ()
        self.services: dict[ObjectKey, Service] = {}
        self._slices: dict[ObjectKey, tuple[EndpointSlice, ...]] = {}
        self.addresses: dict[str, tuple[str, ...]] = {}
        """By name, the addresses it has."""
        for number in range(services):
            key = ObjectKey(f"ns{number % 50}", f"svc{number}")
            own = f"10.96.{number >> 8}.{number & 255}"
            pods = tuple(
                f"10.{128 + (at >> 16)}.{at >> 8 & 255}.{at & 255}"
                for at in range(number * endpoints, (number + 1) * endpoints)
            )
            headless = number % 2 == 1
            text = "None" if headless else own
            spec = ServiceSpec(cluster_ip=text, cluster_ips=(text,), ports=(ServicePort(80, "http"),))
            self.services[key] = Service(ObjectMeta(name=key.name, namespace=key.namespace), spec)
            self._slices[key] = (
                EndpointSlice(
                    ObjectMeta(name=f"{key.name}-x", namespace=key.namespace),
                    "IPv4",
                    tuple(Endpoint((pod,)) for pod in pods),
                    (EndpointPort(name="http", port=8080),),
                ),
            )
            self.addresses[f"{key.name}.{key.namespace}.svc.cluster.local"] = pods if headless else (own,)

    def slices_of(self, service: ObjectKey) -> tuple[EndpointSlice, ...]:
        return self._slices.get(service, ())


@dataclass
class Row:
    """What was measured of a server."""

    name: str
    rates: list[float] = field(default_factory=list)
    microseconds: list[float] = field(default_factory=list)
    lost: int = 0
    waits: list[float] = field(default_factory=list)
    """Milliseconds, sorted."""
    megabytes: float = 0.0


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((ADDRESS, 0))
        port: int = sock.getsockname()[1]
        return port


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def megabytes(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def unbound_conf(objects: Objects, port: int) -> Iterator[str]:
    yield 'server:\n  interface: 127.0.0.1\n  do-daemonize: no\n  use-syslog: no\n  username: ""\n  chroot: ""\n'
    yield f"  port: {port}\n  num-threads: 1\n  verbosity: 0\n  minimal-responses: yes\n"
    yield "  local-zone: cluster.local. static\n"
    for name, addresses in objects.addresses.items():
        for address in addresses:
            yield f'  local-data: "{name}. 30 IN A {address}"\n'


def run_dnsperf(port: int, queries: Path, seconds: int, at_most: int | None = None) -> tuple[float, int, int]:
    """Queries a second, how many were sent, how many were lost. at_most: so many a second."""
    command = [
        "dnsperf",
        "-s",
        ADDRESS,
        "-p",
        str(port),
        "-d",
        str(queries),
        "-l",
        str(seconds),
        "-c",
        "8",
        "-q",
        "100",
        *(() if at_most is None else ("-Q", str(at_most))),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Queries per second:\s+([\d.]+)", said)
    sent = re.search(r"Queries sent:\s+(\d+)", said)
    lost = re.search(r"Queries lost:\s+(\d+)", said)
    assert rate is not None, said
    assert sent is not None, said
    assert lost is not None, said
    return float(rate[1]), int(sent[1]), int(lost[1])


def measure(row: Row, pid: int, port: int, queries: Path, seconds: int) -> None:
    before = processor_seconds(pid)
    rate, sent, lost = run_dnsperf(port, queries, seconds)
    row.rates.append(rate)
    row.microseconds.append((processor_seconds(pid) - before) / sent * 1e6)
    row.lost += lost
    row.megabytes = megabytes(pid)


def measure_waits(row: Row, port: int, queries: Path, names: Sequence[str], seconds: int) -> None:
    """One more client asks PROBES_A_SECOND times, one name after the other, while dnsperf asks at half of the median rate."""
    half = int(statistics.median(row.rates) / 2)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, ThreadPoolExecutor(1) as pool:
        sock.connect((ADDRESS, port))
        sock.settimeout(PROBE_SECONDS)
        load = pool.submit(run_dnsperf, port, queries, seconds, half)
        time.sleep(seconds / 4)  # dnsperf reads its file first
        for name in islice(cycle(names), PROBES_A_SECOND * seconds // 2):
            query = dns.message.make_query(name, dns.rdatatype.A).to_wire()
            time.sleep(1 / PROBES_A_SECOND)
            sent = time.perf_counter()
            sock.send(query)
            sock.recv(4096)
            row.waits.append((time.perf_counter() - sent) * 1000)
        _, _, lost = load.result()
    row.lost += lost
    row.waits.sort()


async def compare(arguments: argparse.Namespace, directory: Path) -> list[Row]:
    objects = Objects(arguments.services, arguments.endpoints)
    ours, theirs = free_port(), free_port()
    queries = directory / "queries"
    names = list(objects.addresses)
    queries.write_text("".join(f"{names[at * 7919 % len(names)]} A\n" for at in range(NAMES_ASKED)))
    conf = directory / "unbound.conf"
    conf.write_text("".join(unbound_conf(objects, theirs)))
    feeder = Feeder(objects, wall=time.time)
    reported = asyncio.Event()
    supervisor = Supervisor(
        directory / "dns.sock",
        (ListenAddress(ADDRESS, ours),),
        Settings(user=os.getuid()),
        feeder,
        on_report=lambda report: reported.set() if is_complete(report, arguments.services) else None,
    )
    task = asyncio.create_task(supervisor.run(), name="supervisor")
    feeder.passed(None)
    other = await asyncio.create_subprocess_exec("unbound", "-c", str(conf), "-d")
    rows = [Row("nodeagent"), Row("unbound")]
    try:
        await asyncio.wait_for(reported.wait(), READY_SECONDS)
        for turn in range(arguments.turns + 1):
            for row, pid, port in ((rows[0], supervisor.pid, ours), (rows[1], other.pid, theirs)):
                await asyncio.to_thread(measure, row, pid, port, queries, arguments.seconds)
            if not turn:  # the first answers are prepared, and are not what is measured
                for row in rows:
                    row.rates.clear()
                    row.microseconds.clear()
        for row, port in ((rows[0], ours), (rows[1], theirs)):
            await asyncio.to_thread(measure_waits, row, port, queries, names, arguments.seconds)
    finally:
        other.terminate()
        await other.wait()
        pid = supervisor.pid
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        os.kill(pid, signal.SIGTERM)
    return rows


def is_complete(report: Report, services: int) -> bool:
    return report.synced and report.counts.services == services


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="of each turn")
    parser.add_argument("--most", type=float, default=1.5, help="times unbound's processor time for a query")
    arguments = parser.parse_args()
    missing = [name for name in ("dnsperf", "unbound") if shutil.which(name) is None]
    if missing:
        print(f"names: not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        rows = asyncio.run(compare(arguments, Path(directory)))
    heads = f"{'qps median':>11} {'best':>8} {'us/query':>9} {'lost':>5} {'half load, ms':>14} {'p99':>6} {'RSS MB':>7}"
    print(f"{'server':<10} {heads}")
    for row in rows:
        median, best = statistics.median(row.rates), max(row.rates)
        cost = statistics.median(row.microseconds)
        wait, slow = (row.waits[len(row.waits) * share // 100] for share in (50, 99))
        figures = (
            f"{median:>11.0f} {best:>8.0f} {cost:>9.2f} {row.lost:>5} {wait:>14.3f} {slow:>6.2f} {row.megabytes:>7.1f}"
        )
        print(f"{row.name:<10} {figures}")
    ratio = statistics.median(rows[0].microseconds) / statistics.median(rows[1].microseconds)
    print(f"processor time of a query: {ratio:.2f} times unbound's")
    return 1 if ratio > arguments.most else 0


if __name__ == "__main__":
    sys.exit(main())

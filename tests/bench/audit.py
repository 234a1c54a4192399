"""What the audit of the kernel's state costs: processor time, and how long a step holds the event loop.

    python tests/bench/audit.py [--services 10000] [--endpoints 10] [--seconds 60]      (as root; in a network namespace of its own)

Both families have so many Services. For `seconds` the tables are looked at as an agent looks at plain ones; what a round does once, the
outline of a table and the service interface, is measured by itself. Last come what connections through the rules of other programs cost:
a firewall with 200 rules, and routes to all endpoints.
"""

import argparse
import asyncio
import ctypes
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from nodeagent.daemon.agent import PLAIN_GUARD_SECONDS  # noqa: E402
from nodeagent.daemon.connection_follower import ConnectionFollower  # noqa: E402
from nodeagent.model.addresses import Family, Protocol  # noqa: E402
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, ServiceState  # noqa: E402
from nodeagent.model.names import ObjectKey, ServicePortName  # noqa: E402
from nodeagent.model.reports import DriftReport, PurgeReport  # noqa: E402
from nodeagent.proxy.dataplane.connection_watch import LOOK_SECONDS, RARELY_SECONDS, sample  # noqa: E402
from nodeagent.proxy.dataplane.driver.belief import Ownership  # noqa: E402
from nodeagent.proxy.dataplane.driver.driver import TableDriver  # noqa: E402
from nodeagent.proxy.dataplane.driver.element_walk import AUDIT_SECONDS  # noqa: E402
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset  # noqa: E402
from nodeagent.proxy.dataplane.interface import ServiceInterface  # noqa: E402
from nodeagent.proxy.dataplane.path_fingerprint import read_fingerprint  # noqa: E402
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions  # noqa: E402
from nodeagent.proxy.dataplane.walk_rest import REST  # noqa: E402

_CLONE_NEWNET = 0x40000000
_MEMORY = "from nodeagent.cli.follow_sample import main; main(); print(*[one for one in open('/proc/self/status') if 'VmHWM' in one])"
_SURROUNDINGS = """
ip link add uplink mtu 1450 type veth peer name router; for i in uplink router lo; do ip link set $i up; done
ip address add 192.0.2.1/24 dev uplink; ip route add default via 192.0.2.2
ip address add 2001:db8::1/64 dev uplink nodad; ip -6 route add default via 2001:db8::2
for a in 192.0.2.2 2001:db8::2; do ip neigh add $a lladdr 02:00:00:00:00:02 dev uplink nud permanent; done
nft "table inet other { chain f { type filter hook forward priority 0; policy drop; $(for n in $(seq 200); do
echo "ip saddr 198.51.100.$n tcp dport 22 drop;"; done) accept; }; }"
"""


class _Listener:
    def affinity_purged(self, report: PurgeReport) -> None:
        """No client has learned anything here."""

    def drift_found(self, report: DriftReport) -> None:
        raise AssertionError(f"nothing was changed: {report}")


def service(index: int, endpoints: int) -> ServiceState:
    key = ObjectKey("default", f"svc-{index}")
    name = ServicePortName(key, "http", Protocol.TCP)
    vips = {Family.IPV4: f"172.16.{index >> 8}.{index & 255}", Family.IPV6: f"fd00:96::1:{index:x}"}
    pods = {
        Family.IPV4: [
            f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(index * endpoints, (index + 1) * endpoints)
        ],
        Family.IPV6: [
            f"fd00:10::{n >> 16:x}:{n & 0xFFFF:x}" for n in range(index * endpoints, (index + 1) * endpoints)
        ],
    }
    frontends = tuple(
        Frontend(
            FrontendKind.CLUSTER_IP, family, vips[family], Protocol.TCP, 80, name,
            Route(tuple(Backend(pod, 8080) for pod in pods[family])),
        )
        for family in Family
    )  # fmt: skip
    return ServiceState(key, cluster_ips=tuple(vips.values()), frontends=frontends)


async def timed(work: Awaitable[object]) -> tuple[float, float]:
    """Seconds of processor time, and on the clock."""
    processor, clock = time.process_time(), time.perf_counter()
    await work
    return time.process_time() - processor, time.perf_counter() - clock


async def measure(services: int, endpoints: int, seconds: float) -> dict[ObjectKey, ServiceState]:
    states = {state.key: state for state in (service(index, endpoints) for index in range(services))}
    node = NodeState(("172.16.0.0/12", "fd00:96::/108"), ("10.0.0.0/8", "fd00:10::/32"), ())
    netlink, interface = Ruleset(), ServiceInterface()
    options = ProgramOptions(PodDetection.CIDR)
    drivers = [TableDriver(family, netlink, options, Ownership.PLAIN, _Listener()) for family in Family]
    for driver in drivers:
        await driver.sync(states, node)
    await interface.sync(frozenset(vip for state in states.values() for vip in state.cluster_ips))
    walks = [driver._others._walk for driver in drivers]
    for driver, walk in zip(drivers, walks, strict=True):
        await driver.changed_by_others()
        walk._begun = time.monotonic() - AUDIT_SECONDS  # a round begins at the next look
    outline = [await timed(driver.changed_by_others()) for driver in drivers]
    longest, looks = 0.0, round(seconds / PLAIN_GUARD_SECONDS)
    began = time.process_time()
    for _ in range(looks):
        begun = time.process_time()
        for driver in drivers:
            assert not await driver.changed_by_others()
        longest = max(longest, time.process_time() - begun)
        await asyncio.sleep(PLAIN_GUARD_SECONDS)
    with_slices = time.process_time() - began
    for walk in walks:
        walk._sets, walk._keys, walk._begun = [], iter(()), time.monotonic()
    began = time.process_time()
    for _ in range(looks):
        for driver in drivers:
            assert not await driver.changed_by_others()
        await asyncio.sleep(PLAIN_GUARD_SECONDS)
    without = time.process_time() - began
    addresses = await timed(interface.audit())
    once = sum(spent for spent, _ in outline) + addresses[0]
    share = 0.8 * (with_slices - without) / seconds + once / AUDIT_SECONDS
    print(f"elements                        {sum(fill.elements for driver in drivers for fill in driver.fills)}")
    print(f"looks with slices, of a core    {with_slices / seconds:.2%}, without {without / seconds:.2%}")
    print(f"longest look, both families     {longest * 1000:.1f} ms of processor time")
    print(f"outlines                        {', '.join(f'{spent * 1000:.1f} ms' for spent, _ in outline)}")
    print(f"service interface               {addresses[0] * 1000:.0f} ms, in a thread")
    print(f"the audit, of a core            {share:.2%} (a round of {AUDIT_SECONDS:.0f} s)")
    return states


def follow(states: dict[ObjectKey, ServiceState]) -> None:
    """Prints what it costs to see that other programs changed nothing, and to follow connections after they did."""
    subprocess.run(["sh", "-ec", _SURROUNDINGS], check=True)
    seen = read_fingerprint(None)
    began = time.process_time()
    read_fingerprint(seen)
    unchanged, began = time.process_time() - began, time.process_time()
    read_fingerprint(None)
    changed, began = time.process_time() - began, time.process_time()
    chosen = sample(states)
    sampled = time.process_time() - began
    found = asyncio.run(ConnectionFollower().follow(chosen))
    share = unchanged / LOOK_SECONDS + (found.processor_seconds + sampled) / RARELY_SECONDS
    memory = (
        int(
            subprocess.run([sys.executable, "-c", _MEMORY, *chosen], check=True, capture_output=True).stdout.split()[-2]
        )
        / 1024
    )
    print(f"rules of others unchanged       {unchanged * 1000:.1f} ms; changed {changed * 1000:.1f} ms, in a thread")
    print(
        f"connections followed            {found.processor_seconds:.2f} s of a process of {memory:.0f} MB; {sampled * 1000:.1f} ms here"
    )
    print(
        f"  of a core, nothing changes    {share:.2%}; at most {1 / REST:.0%}, then each {found.processor_seconds * REST:.0f} s"
    )
    print(f"  problems                      {len(found.problems)}{found.unread and f', {found.unread}'}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
        sys.exit("a network namespace cannot be made: run as root")
    follow(asyncio.run(measure(chosen.services, chosen.endpoints, chosen.seconds)))


if __name__ == "__main__":
    main()

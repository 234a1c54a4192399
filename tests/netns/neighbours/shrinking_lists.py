"""Run as a program in a node's namespace: a service whose list of endpoints grows and shrinks as fast as it goes.

python shrinking_lists.py OWNERSHIP ENDPOINT       prints `ready`, and on SIGTERM how often it shrank
"""

import asyncio
import signal
import sys

from nodeagent.model.addresses import Family, Protocol, family_of
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, NodeState, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.reports import DriftReport, PurgeReport
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions

CLUSTER_IPS = {Family.IPV4: "10.96.0.1", Family.IPV6: "fd00:10:96::1"}
PORT = 1
LONG, SHORT = 8, 1
SERVICE = ObjectKey("default", "shrinking")
NODE = NodeState(("10.96.0.0/16", "fd00:10:96::/112"), ("10.244.0.0/16", "fd00:244::/32"), ())


def state(family: Family, endpoint: str, length: int) -> ServiceState:
    """The service with so many endpoints: one address, ports from 1 upwards."""
    backends = tuple(Backend(endpoint, 1 + number) for number in range(length))
    address = CLUSTER_IPS[family]
    port_name = ServicePortName(SERVICE, "", Protocol.UDP)
    frontend = Frontend(FrontendKind.CLUSTER_IP, family, address, Protocol.UDP, PORT, port_name, Route(backends))
    return ServiceState(SERVICE, cluster_ips=(address,), frontends=(frontend,))


class Silent:
    """Nobody hears of affinity here."""

    def affinity_purged(self, report: PurgeReport) -> None: ...
    def drift_found(self, report: DriftReport) -> None: ...


async def main(ownership: Ownership, endpoint: str) -> int:
    """How often the list became shorter."""
    socket = Ruleset()
    options = ProgramOptions(PodDetection.CIDR)
    driver = TableDriver(family_of(endpoint), socket, options, ownership, Silent())
    shrunk = 0

    async def write(length: int) -> None:
        await driver.sync({SERVICE: state(driver.family, endpoint, length)}, NODE)

    await write(SHORT)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    while not ended.is_set():
        await write(LONG)
        await write(SHORT)
        shrunk += 1
        await asyncio.sleep(0)
    return shrunk


if __name__ == "__main__":
    print("shrank", asyncio.run(main(Ownership(sys.argv[1]), sys.argv[2])))

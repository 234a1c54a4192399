"""Traffic to one service from everywhere, of which nothing may be lost during any operation on the agent."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from nodeagent.lab.net.member import Holding, Loading
from tests.harness.cluster import NODE, Cluster, cluster_ips
from tests.harness.lost_packets import PATIENT, resent_syns

CLIENTS = ("caller", "outside", NODE)
SHOP = cluster_ips(1)
PODS = ("web-0", "web-1", "web-2")
LOAD = 20
"""Connections of each load before and after what is done to the agent."""


class Interrupted(AssertionError):
    """Something was lost; the text says what."""


@dataclass
class Traffic:
    """New connections all the time from everywhere, and some that are open."""

    loads: list[Loading]
    held: list[Holding]

    def flow(self) -> None:
        """Wait until a good number of connections more were made by every load. Raises Interrupted."""
        before = [load.report().attempts for load in self.loads]
        deadline = time.monotonic() + 60
        for load, attempts in zip(self.loads, before, strict=True):
            while load.report().attempts < attempts + LOAD:
                if time.monotonic() > deadline:
                    raise Interrupted(f"no {LOAD} connections more within a minute")
                time.sleep(0.005)


@contextmanager
def uninterrupted(cluster: Cluster) -> Iterator[Traffic]:
    """Traffic to the service at SHOP, port 80, served by PODS, of which nothing is lost until the block ends.

    Raises Interrupted.
    """
    with ExitStack() as stack:
        members = [cluster.world[client] for client in CLIENTS]
        held = [stack.enter_context(m.hold(address, 80, count=5)) for m in members for address in SHOP]
        opened = [[answer.name for answer in holding.opened] for holding in held]
        loads = [stack.enter_context(m.load(a, 80, interval=0.01, timeout=PATIENT)) for m in members for a in SHOP]
        traffic = Traffic(loads, held)
        resent = {client: resent_syns(cluster.world, client) for client in CLIENTS}
        traffic.flow()
        yield traffic
        traffic.flow()
        for load in loads:
            report = load.stop()
            if report.failures or set(report.names) != set(PODS):
                raise Interrupted(f"of {report.attempts} new connections {report.failures} failed: {report.names}")
        now = {client: resent_syns(cluster.world, client) for client in CLIENTS}
        if now != resent:
            raise Interrupted(f"first packets of connections were lost: {resent} were resent before, {now} after")
        for holding, names in zip(held, opened, strict=True):
            answered = [answer.name for answer in holding.ask()]
            if answered != names or not set(names) <= set(PODS):
                raise Interrupted(f"connections open to {names} are answered by {answered}")

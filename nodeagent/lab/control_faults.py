"""Faults of several control planes: members of etcd, API servers, their clocks, the database space."""

import json
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from nodeagent.lab.control_plane import ControlPlane
from nodeagent.lab.etcd import EtcdCluster
from nodeagent.lab.faults import Broken, Site, freeze_process, kill_process
from nodeagent.lab.lab_plan import API_PORT, ETCD_PEER_PORT
from nodeagent.lab.net.namespace_process import AgentProcess
from nodeagent.lab.net.network_namespaces import LabError

CUT = "lab-cut"
FAKETIME_PLACES = "usr/lib/*/faketime/libfaketimeMT.so.1"
LEAST_SHARE = 0.5
"""The share of a clock skew that must be seen."""
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps?dryRun=All"


class ControlPlanePart(Struct, frozen=True):
    """A program of which each control-plane host has one. port: where others connect to it."""

    process: Callable[[ControlPlane, str], AgentProcess]
    restart: Callable[[ControlPlane, str], None]
    port: int

    def kill(self, site: Site) -> Broken:
        """Kills it (SIGKILL); the repair starts it again."""
        control = control_of(site)
        process = self.process(control, site.node)

        def start() -> str:
            began = time.monotonic()
            self.restart(control, site.node)
            return f"{process.pid} answered after {time.monotonic() - began:.1f} s"

        return kill_process(site, process, start)

    def freeze(self, site: Site) -> Broken:
        """Stops it (SIGSTOP)."""
        process = self.process(control_of(site), site.node)
        return freeze_process(
            site, process, lambda: process.signal(signal.SIGSTOP), lambda: process.signal(signal.SIGCONT)
        )

    def cut(self, site: Site) -> Broken:
        """Drops packets between it and other hosts at its port, without an error."""
        world = site.cluster.world
        commands = f"add table inet {CUT}\n" + "".join(
            f"add chain inet {CUT} {hook} {{ type filter hook {hook} priority -400; }}\n"
            f"add rule inet {CUT} {hook} {direction}ifname eth0 tcp {port} {self.port} counter drop\n"
            for hook, direction in (("input", "i"), ("output", "o"))
            for port in ("dport", "sport")
        )

        def look() -> str:
            listed = world.run(site.node, ["nft", "-j", "list", "table", "inet", CUT]).stdout
            rules = [entry["rule"]["expr"] for entry in json.loads(listed)["nftables"] if "rule" in entry]
            dropped = sum(one["counter"]["packets"] for rule in rules for one in rule if "counter" in one)
            if not dropped:
                raise LabError(f"none of the packets to and from port {self.port} of {site.node} was dropped")
            return f"{dropped} packets dropped in {time.monotonic() - site.began:.1f} s"

        def join() -> None:
            world.nft(site.node, f"delete table inet {CUT}")

        world.nft(site.node, commands)
        return Broken(look, join)


def etcd_of(control: ControlPlane) -> EtcdCluster:
    """Returns etcd. Raises LabError if the API server has its own store."""
    if control.etcd is None:
        raise LabError("the lab has no etcd")
    return control.etcd


def control_of(site: Site) -> ControlPlane:
    """Returns the control plane. Raises LabError if the API server is not the lab's."""
    if site.cluster.control is None:
        raise LabError("the API server does not belong to the lab")
    return site.cluster.control


ETCD = ControlPlanePart(
    lambda control, host: etcd_of(control).members[host],
    lambda control, host: etcd_of(control).restart(host),
    ETCD_PEER_PORT,
)
"""A member of etcd. If it is cut off from the other members, clients still reach it."""
SERVER = ControlPlanePart(
    lambda control, host: control.servers[host], lambda control, host: control.restart_server(host), API_PORT
)
"""An API server."""


def space(site: Site) -> Broken:
    """Uses up the quota of etcd's database, so that nothing is written until there is room again."""
    etcd = etcd_of(control_of(site))

    def look() -> str:
        if not etcd.is_full():
            raise LabError("etcd has raised no alarm")
        return f"alarm after {written >> 20} MB"

    def make_room() -> str:
        began = time.monotonic()
        etcd.make_room()
        return f"compacted, defragmented and disarmed in {time.monotonic() - began:.1f} s"

    try:
        written = etcd.fill()
    except BaseException:
        etcd.make_room()
        raise
    site.began = time.monotonic()
    return Broken(look, make_room)


def clock(site: Site) -> Broken:
    """Restarts an API server with a clock that is ahead; the repair restarts it with the right one.

    Only its wall clock changes: CLOCK_REALTIME belongs to the machine, so a preloaded library changes what the C
    library returns. etcd, a Go program, does not use the C library.
    """
    control = control_of(site)
    library = find_faketime(site.cluster.settings.faketime)
    environment = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"+{site.amount:g}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }

    def look() -> str:
        with control.api_of(site.node) as api:
            shown = api.call("POST", CONFIG_MAPS, {"metadata": {"name": "nodeagent-lab-clock"}})
        there = datetime.fromisoformat(shown["metadata"]["creationTimestamp"])
        ahead = (there - datetime.now(UTC)).total_seconds()
        if ahead < LEAST_SHARE * site.amount:
            raise LabError(f"the clock of {site.node}'s API server was {ahead:.0f} s ahead, not {site.amount:g}")
        return f"it dated an object {ahead:.0f} s ahead"

    return Broken(look, control.replace_server(site.node, environment))


def find_faketime(given: str) -> Path:
    """Returns the path of the preload library that changes the clock. Raises LabError."""
    found = [Path(given)] if given else sorted(Path("/").glob(FAKETIME_PLACES))
    if not found or not found[0].is_file():
        raise LabError(f"there is no {given or f'/{FAKETIME_PLACES}'}: in Debian it is in the package libfaketime")
    return found[0]

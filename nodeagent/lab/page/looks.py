"""Reads what agents report, and nodes' connection tables. All functions block, for milliseconds."""

import json
import socket
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.lab_status import agent_state, answer_of_agent, is_healthy
from nodeagent.lab.net.network_namespaces import LabError, inside
from nodeagent.lab.page.page_state import NodeLook, ServiceLook, Tracked
from nodeagent.model.addresses import Family, endpoint_text, unpack_address
from nodeagent.wire.netlink.conntrack import client_of, dump_udp, read_flows
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER

METRICS_PORT = 10249
_STAYS = "what is programmed stays as it was then"
NO_ANSWER = {
    "silent": f"the agent does not answer: it hangs, and {_STAYS}",
    "frozen": f"the agent is frozen, and {_STAYS}",
    "stopped": f"no agent runs, and {_STAYS}",
}
PROTOCOLS = (socket.IPPROTO_TCP, socket.IPPROTO_UDP)


def look_at(cluster: LiveCluster, node: str) -> NodeLook:
    """Returns the present state of the node's agent, its health, its first problem and its services."""
    agent = agent_state(cluster, node)
    at = cluster.world.namespace(node)
    answer = answer_of_agent(at, "127.0.0.1", METRICS_PORT, "/api/services") if agent == "running" else None
    if answer is None:
        agent = "silent" if agent == "running" else agent
        return NodeLook(time.monotonic(), agent, cluster.restarts[node], False, None, NO_ANSWER[agent])
    report = json.loads(answer)
    services = {
        str(name): ServiceLook(str(address), int(str(endpoints)), int(str(connections)), str(state))
        for name, address, _, endpoints, connections, state in report["services"]
    }
    healthy = is_healthy(cluster, node)
    return NodeLook(time.monotonic(), agent, cluster.restarts[node], healthy, services, problem_line(report))


def problem_line(report: Mapping[str, Any]) -> str:
    """Returns the first line of `nodeagent problems`, from an agent's report; empty without problems."""
    first, more = report["problem"], report["problem_count"] - 1
    return (
        f"not healthy: {first['subject']}, because {first['detail']}{f' (and {more} more)' * (more > 0)}"
        if first
        else ""
    )


def names_of(cluster: LiveCluster) -> dict[str, str]:
    """Returns the name of the node, pod or client for each address."""
    members = [*cluster.world.topology.members, *(pod for pod, _ in list(cluster.pods.values()))]
    return {address: member.name for member in members for address in member.addresses}


def tracked_on(cluster: LiveCluster, node: str, names: Mapping[str, str]) -> list[Tracked]:
    """Returns the translated TCP and UDP connections in a node's connection table; empty if that cannot be read.

    names: names by address; other addresses are shown as they are.
    """
    families = (Family.IPV4, Family.IPV6) if cluster.settings.ipv6 else (Family.IPV4,)

    def read() -> Counter[tuple[str, str, str]]:
        found: Counter[tuple[str, str, str]] = Counter()
        with NetlinkSocket(NETLINK_NETFILTER) as kernel:
            for family in families:
                for protocol in PROTOCOLS:
                    for datagram in kernel.dump_datagrams(dump_udp(family, of=protocol)):
                        for flow in read_flows(family, datagram, wanted=protocol):
                            if flow.destination == flow.reply_source and flow.port == flow.reply_port:
                                continue
                            client = client_of(family, flow)
                            source = unpack_address(client[0]) if client else "?"
                            address = endpoint_text(unpack_address(flow.destination), flow.port)
                            endpoint = unpack_address(flow.reply_source)
                            found[names.get(source, source), address, names.get(endpoint, endpoint)] += 1
        return found

    try:
        counts = inside(cluster.world.namespace(node), read)
    except (OSError, LabError):
        return []
    return [Tracked(node, *key, count) for key, count in counts.items()]

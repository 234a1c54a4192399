"""The flows of this network namespace as the kernel lists them in text, for tables with few: a tenth of the time of a dump.

A dump over netlink takes the lock of each of 262,144 buckets, 12 ms of processor time, also for an empty table (nf_conntrack_netlink.c,
ctnetlink_dump_table). The list goes past empty ones (nf_conntrack_standalone.c, ct_get_next), in 1.5 ms. But by a list nothing can be deleted.
"""

import re
from pathlib import Path

from nodeagent.model.addresses import Family, pack_address
from nodeagent.proxy.dataplane.conntrack_size import flows_tracked
from nodeagent.wire.netlink.conntrack import Flow

FEW_FLOWS = 32
"""More of them do not fit into a page."""
_BYTES = 1 << 16
"""More than one read yields: the kernel fills a page (seq_file.c, seq_read_iter)."""
_LIST = Path("/proc/thread-self/net/nf_conntrack")
_NAMES = {Family.IPV4: "ipv4", Family.IPV6: "ipv6"}
_FLOW = re.compile(
    r"(\S+) +\d+ \S+ +(\d+) .*?src=\S+ dst=(\S+) sport=\d+ dport=(\d+) .*?src=(\S+) dst=\S+ sport=(\d+) dport=\d+"
)
_OF_A_ZONE = re.compile(r"\bzone(-orig|-reply)?=(?!0\b)")


def read_flow_list() -> str | None:
    """Returns the list, a flow a line; None if it does not come in one piece, or if the kernel does not show it to this process
    (CONFIG_NF_CONNTRACK_PROCFS). Of several pieces one may lack a flow: older kernels count those that they have shown, and one of these
    may have ended meanwhile."""
    if flows_tracked() > FEW_FLOWS:
        return None
    try:
        with _LIST.open("rb", buffering=0) as file:
            text = file.read(_BYTES)
            return None if file.read(1) else text.decode()
    except OSError:
        return None


def listed_flows(text: str, family: Family, protocol: int) -> list[Flow]:
    """Returns the flows of a list, but for those in a conntrack zone; without the message by which a flow can be deleted."""
    found: list[Flow] = []
    for line in text.splitlines():
        match = _FLOW.match(line)
        if match is None or match[1] != _NAMES[family] or int(match[2]) != protocol or _OF_A_ZONE.search(line):
            continue
        _, _, destination, port, source, source_port = match.groups()
        found.append(
            Flow(pack_address(destination), int(port), pack_address(source), int(source_port), memoryview(b""))
        )
    return found

"""The same Services by other means: the kernel alone, kube-proxy's layout by nft, that of its mode iptables by iptables-legacy-restore.

`unshare -n python -m tests.bench.peers SERVICES ENDPOINTS`, as root, prints seconds as JSON: of loading everything into an empty kernel, and
of a change of one endpoint. The kernel alone gets, encoded before, what the agent has sent; kube-proxy's layouts are given to the program
that kube-proxy runs, with the text ready. What is not installed, or what the kernel lacks, is left out.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from statistics import median

from msgspec import convert
from msgspec.structs import replace

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import NodeState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, service_of
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.driver import TableDriver
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.engine.change_queue import ChangeQueue
from nodeagent.proxy.source.object_store import ClusterStore
from nodeagent.proxy.translate.node_state import node_context
from nodeagent.proxy.translate.translator import Translator
from nodeagent.wire.netlink.socket import NetlinkSocket, errno_of
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER
from tests.bench.new_connection import PLANS, kube_proxy
from tests.bench.table import SETTINGS, Passes, service_json, slice_json

CHANGES = 5
"""Of each kind; the median counts."""
LONGEST_SECONDS = 120.0
"""Of a program; then its row is left out."""
PLAN = PLANS[Family.IPV4]
Figures = dict[str, float]


class Recording(Ruleset):
    """Keeps what it commits."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Transaction] = []

    def commit(self, transaction: Transaction, known: int | None = None) -> list[bytes]:
        if not transaction.empty:
            self.sent.append(transaction)
        return super().commit(transaction, known)


class Alone:
    """Gives the kernel batches that are encoded before."""

    def __init__(self) -> None:
        self._socket = NetlinkSocket(NETLINK_NETFILTER)
        self._socket.enlarge_receive_buffer(8 << 20)

    def seconds(self, transactions: list[Transaction]) -> float:
        """Returns how long the kernel takes. Raises OSError if it refuses."""
        batches = [
            (one.encode(first := self._socket.reserve(len(one.messages) + 2)), first, len(one.messages))
            for one in transactions
        ]
        self._socket.enlarge_send_buffer(2 * max(len(batch) for batch, _, _ in batches))
        began = time.perf_counter()
        for batch, first, messages in batches:
            self._socket.send(batch)
            for answer in self._socket.acknowledgements(first, first + messages):
                if code := errno_of(answer):
                    raise OSError(code, "refused")
        return time.perf_counter() - began


async def kernel_alone(services: int, endpoints: int) -> Figures:
    """Returns how long the kernel takes for what a driver has sent, and the driver with it."""
    store, ruleset, passes = ClusterStore(ChangeQueue(time.monotonic)), Recording(), Passes()
    store.replace(Service, convert([service_json(index) for index in range(services)], list[Service]))
    slices = convert([slice_json(index, endpoints) for index in range(services)], list[EndpointSlice])
    store.replace(EndpointSlice, slices)
    translator, context = Translator(), node_context(None, SETTINGS)
    driver = TableDriver(Family.IPV4, ruleset, ProgramOptions(PodDetection.CIDR), Ownership.PLAIN, passes)
    await driver.sync(translator.update(store, None, context), NodeState())
    everything, ruleset.sent = ruleset.sent, []
    smaller = replace(slices[0], endpoints=(slices[0].endpoints or ())[1:])
    for version in (smaller, slices[0]) * 2:  # the first time a chain is added, too
        store.put(version)
        await driver.sync(translator.update(store, {key_of_service(slices[0])}, context), NodeState())
    change = ruleset.sent[-2:]
    away = Transaction(Family.IPV4, {})
    away.delete_table()
    alone = Alone()
    alone.seconds([away])
    found = {"load": alone.seconds(everything)}
    alone.seconds(ruleset.sent[:-2])
    found["change"] = median(alone.seconds([step]) for _ in range(20 * CHANGES) for step in change)
    alone.seconds([away])
    return found


def key_of_service(one: EndpointSlice) -> ObjectKey:
    found = service_of(one)
    assert found is not None
    return found


def _seconds(*argv: str, text: str) -> float:
    """Returns how long a program takes to its end. Raises CalledProcessError and TimeoutExpired."""
    began = time.perf_counter()
    subprocess.run(argv, input=text, text=True, check=True, capture_output=True, timeout=LONGEST_SECONDS)
    return time.perf_counter() - began


def by_nft(services: int, endpoints: int) -> Figures:
    """kube-proxy's layout of 1.36 in mode nftables; of a changed Service, its chain is flushed and written again."""
    found = {"load": _seconds("nft", "-f", "-", text=kube_proxy(PLAN, services, endpoints))}
    changes = []
    for turn in range(CHANGES):
        count = endpoints - turn % 2 or 1
        targets = ", ".join(f"{slot} : {PLAN.pod(slot)} . 8080" for slot in range(count))
        rule = f"meta l4proto tcp dnat ip to numgen random mod {count} map {{ {targets} }}"
        text = f"flush chain ip kube-proxy service-0\nadd rule ip kube-proxy service-0 {rule}\n"
        changes.append(_seconds("nft", "-f", "-", text=text))
    subprocess.run(["nft", "delete", "table", "ip", "kube-proxy"], check=True)
    return found | {"change": median(changes)}


def by_iptables(services: int, endpoints: int) -> Figures:
    """The chains of kube-proxy's mode iptables (pkg/proxy/iptables/proxier.go): one for each Service, one for each endpoint."""
    lines = ["*nat", ":KUBE-SERVICES - [0:0]", ":KUBE-MARK-MASQ - [0:0]", "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000"]
    for index in range(services):
        lines += _iptables_chains(index, endpoints, endpoints)
        lines.append(f"-A KUBE-SERVICES -d {PLAN.service(index)}/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-{index}")
    lines += ["-A PREROUTING -j KUBE-SERVICES", "-A OUTPUT -j KUBE-SERVICES", "COMMIT", ""]
    found = {"load": _seconds("iptables-legacy-restore", text="\n".join(lines))}
    changes = []
    for turn in range(CHANGES):
        text = ["*nat", *_iptables_chains(0, endpoints, endpoints - turn % 2 or 1), "COMMIT", ""]
        changes.append(_seconds("iptables-legacy-restore", "--noflush", text="\n".join(text)))
    subprocess.run(["iptables-legacy", "-t", "nat", "-F"], check=True)
    return found | {"change": median(changes)}


def _iptables_chains(index: int, endpoints: int, used: int) -> list[str]:
    lines = [f":KUBE-SVC-{index} - [0:0]", *(f":KUBE-SEP-{index}-{slot} - [0:0]" for slot in range(used))]
    place = f"-d {PLAN.service(index)}/32 -p tcp -m tcp --dport 80"
    lines.append(f"-A KUBE-SVC-{index} ! -s {PLAN.pod_prefix} {place} -j KUBE-MARK-MASQ")
    for slot in range(used):
        pod = PLAN.pod(index * endpoints + slot)
        chance = f"-m statistic --mode random --probability {1 / (used - slot):.10f} " if slot < used - 1 else ""
        lines += (
            f"-A KUBE-SVC-{index} {chance}-j KUBE-SEP-{index}-{slot}",
            f"-A KUBE-SEP-{index}-{slot} -s {pod}/32 -j KUBE-MARK-MASQ",
            f"-A KUBE-SEP-{index}-{slot} -p tcp -m tcp -j DNAT --to-destination {pod}:8080",
        )
    return lines


def measure(services: int, endpoints: int) -> dict[str, Figures]:
    found = {"the kernel alone": asyncio.run(kernel_alone(services, endpoints))}
    for name, program, run in (
        ("kube-proxy's layout, nft", "nft", by_nft),
        ("kube-proxy's layout, iptables-legacy-restore", "iptables-legacy-restore", by_iptables),
    ):
        if shutil.which(program):
            try:
                found[name] = run(services, endpoints)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def main() -> None:
    services, endpoints = map(int, sys.argv[1:])
    print(json.dumps(measure(services, endpoints)))


if __name__ == "__main__":
    main()

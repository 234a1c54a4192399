"""Removing what kube-proxy left, against a real kernel."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import NotPermitted
from nodeagent.proxy.dataplane.kube_proxy.ipset import Sets
from nodeagent.proxy.dataplane.kube_proxy.iptables_legacy import InstalledTools, LegacyTables, legacy_tables
from nodeagent.proxy.dataplane.kube_proxy.iptables_nft import NftTables
from nodeagent.proxy.dataplane.kube_proxy.ipvs import VirtualServers
from nodeagent.proxy.dataplane.kube_proxy.leftovers import CleanupTarget, LeftoverError
from nodeagent.proxy.dataplane.kube_proxy.own_tables import OwnTable
from nodeagent.wire.netlink.framing import Request, attribute, nested, string
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER, NLM_F_CREATE, NLM_F_EXCL

pytestmark = pytest.mark.kernel

T = TypeVar("T")
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
KINDS = pytest.mark.parametrize("kind", ["legacy", "nft"])
TOOLS = InstalledTools([Path("/usr/sbin"), Path("/sbin")])
NET_BYTE_ORDER = 0x4000
COMMAND = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
RULES = """
*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-NPX46M4PTMTKRN6Y - [0:0]
:KUBE-SEP-4AXO4NLJZ3JQMQUN - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-SERVICES -p tcp -m comment --comment "default/kubernetes:https cluster IP" -m tcp --dport 443 -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A KUBE-SVC-NPX46M4PTMTKRN6Y -j KUBE-SEP-4AXO4NLJZ3JQMQUN
-A KUBE-SEP-4AXO4NLJZ3JQMQUN -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
COMMIT
*filter
:KUBE-FORWARD - [0:0]
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -p tcp -m comment --comment "rule of somebody else" -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"""


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def run_unprivileged(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


@contextmanager
def place_of(kind: str, family: Family) -> Iterator[CleanupTarget]:
    with closing(Ruleset()) as socket:
        yield LegacyTables(TOOLS, family) if kind == "legacy" else NftTables(socket, family)


def restore(namespace: Namespace, kind: str, family: Family, text: str) -> None:
    command = [f"{COMMAND[family]}-{kind}-restore", "--noflush"]
    namespace.run(lambda: subprocess.run(command, input=text, text=True, check=True))


def save(namespace: Namespace, kind: str, family: Family) -> list[str]:
    text = namespace.shell(f"{COMMAND[family]}-{kind}-save 2>/dev/null")
    return [line for line in text.splitlines() if line.startswith((":KUBE", "-A"))]


def look(namespace: Namespace, kind: str, family: Family) -> tuple[tuple[str, ...], tuple[str, ...]]:
    def work() -> tuple[tuple[str, ...], tuple[str, ...]]:
        with place_of(kind, family) as place:
            finding = place.look()
            return finding.leftovers, finding.notes

    return namespace.run(work)


def remove(namespace: Namespace, kind: str, family: Family) -> None:
    def work() -> None:
        with place_of(kind, family) as place:
            place.look().remove()

    namespace.run(work)


@FAMILIES
@KINDS
def test_rules_go_and_those_of_others_stay(namespace: Namespace, kind: str, family: Family) -> None:
    restore(namespace, kind, family, RULES)
    before = save(namespace, kind, family)
    leftovers, _ = look(namespace, kind, family)
    assert save(namespace, kind, family) == before
    assert len(leftovers) == len(set(leftovers)) == 9

    remove(namespace, kind, family)

    assert set(save(namespace, kind, family)) == {
        ":KUBE-KUBELET-CANARY - [0:0]",
        '-A FORWARD -p tcp -m comment --comment "rule of somebody else" -j ACCEPT',
    }
    assert look(namespace, kind, family) == ((), ())


@FAMILIES
@KINDS
def test_a_chain_that_somebody_else_uses_stays(namespace: Namespace, kind: str, family: Family) -> None:
    port_mapping = "*nat\n:CNI-DN-1 - [0:0]\n-A CNI-DN-1 -j KUBE-MARK-MASQ\nCOMMIT\n"
    restore(namespace, kind, family, RULES)
    restore(namespace, kind, family, port_mapping)
    _, notes = look(namespace, kind, family)

    remove(namespace, kind, family)

    assert len(notes) == 2
    left = save(namespace, kind, family)
    assert {line.split()[0] for line in left if line.startswith(":KUBE")} == {
        ":KUBE-MARK-MASQ",
        ":KUBE-POSTROUTING",
        ":KUBE-KUBELET-CANARY",
    }
    assert '-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING' in left


@FAMILIES
def test_a_table_that_iptables_nft_refuses_is_cleaned_all_the_same(namespace: Namespace, family: Family) -> None:
    """Somebody added a set: iptables-nft-save says the table is incompatible, use nft."""
    restore(namespace, "nft", family, RULES)
    table = "ip" if family is Family.IPV4 else "ip6"
    namespace.shell(f"nft add set {table} nat mine '{{ type mark; }}'")
    namespace.shell(f"nft add rule {table} nat PREROUTING mark @mine accept")

    remove(namespace, "nft", family)

    assert look(namespace, "nft", family) == ((), ())
    assert "@mine accept" in namespace.shell(f"nft list table {table} nat")


@FAMILIES
def test_a_namespace_without_legacy_tables_gets_none_by_a_look(namespace: Namespace, family: Family) -> None:
    assert look(namespace, "legacy", family) == ((), ())

    assert namespace.run(lambda: legacy_tables(family)) == frozenset()


@FAMILIES
def test_its_own_table_goes(namespace: Namespace, family: Family) -> None:
    table = "ip" if family is Family.IPV4 else "ip6"
    namespace.shell(
        f"nft add table {table} kube-proxy; nft add table {table} kube-proxy-not; nft add table inet kube-proxy"
    )

    def work() -> tuple[str, ...]:
        with closing(Ruleset()) as socket:
            found = OwnTable(socket, family).look()
            found.remove()
            assert OwnTable(socket, family).look().leftovers == ()
            return found.leftovers

    assert namespace.run(work) == (f"table {table} kube-proxy",)
    assert namespace.shell("nft list tables").split("\n")[:2] == [
        f"table {table} kube-proxy-not",
        "table inet kube-proxy",
    ]


def create_set(name: str) -> Request:
    """``ipset create NAME bitmap:port range 0-65535``."""
    data = nested(7, attribute(4 | NET_BYTE_ORDER, b"\0\0"), attribute(5 | NET_BYTE_ORDER, b"\xff\xff"))
    body = b"\0\0\0\0" + attribute(1, b"\6") + string(2, name) + string(3, "bitmap:port") + attribute(4, b"\3")
    return Request(6 << 8 | 2, NLM_F_CREATE | NLM_F_EXCL, body + attribute(5, b"\0") + data)


def create_sets(*names: str) -> None:
    with NetlinkSocket(NETLINK_NETFILTER) as netlink:
        assert netlink.perform(create_set(name) for name in names) == []


def test_sets_go_once_no_rule_uses_them(namespace: Namespace) -> None:
    namespace.run(lambda: create_sets("KUBE-NODE-PORT-TCP", "KUBE-6-NODE-PORT-TCP", "MINE"))
    namespace.shell("iptables-legacy -A INPUT -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j ACCEPT")
    finding = namespace.run(Sets().look)
    assert finding.leftovers == ("set KUBE-6-NODE-PORT-TCP", "set KUBE-NODE-PORT-TCP")

    with pytest.raises(LeftoverError, match=r"KUBE-NODE-PORT-TCP \(still used by a rule\)"):
        namespace.run(finding.remove)
    namespace.shell("iptables-legacy -F INPUT")
    namespace.run(lambda: Sets().look().remove())

    assert namespace.run(Sets().look).leftovers == ()
    with pytest.raises(AssertionError):
        namespace.run(lambda: create_sets("MINE"))


def test_its_interface_goes_with_its_addresses(namespace: Namespace) -> None:
    namespace.shell("ip link add kube-ipvs0 type bridge; ip addr add 10.96.0.1/32 dev kube-ipvs0")
    finding = namespace.run(VirtualServers().look)
    assert finding.leftovers[-1:] == ("interface kube-ipvs0",)

    namespace.run(finding.remove)

    assert namespace.run(VirtualServers().look).leftovers == ()
    assert "kube-ipvs0" not in namespace.shell("ip -o addr show")


def test_without_the_capability_cleanup_reports_it_and_changes_nothing(namespace: Namespace) -> None:
    def work() -> None:
        with closing(Ruleset()) as socket:
            with pytest.raises(NotPermitted):
                OwnTable(socket, Family.IPV4).look()
            with pytest.raises(NotPermitted):
                NftTables(socket, Family.IPV4).look()
        with pytest.raises(PermissionError):
            Sets().look()

    namespace.run_unprivileged(work)

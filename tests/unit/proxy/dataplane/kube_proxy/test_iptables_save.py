"""From the text of iptables-save to the text that iptables-restore is given."""

from pathlib import Path

import pytest

from nodeagent.proxy.dataplane.kube_proxy.iptables_save import parse_saved, restore_input
from nodeagent.proxy.dataplane.kube_proxy.rules import TableRule, plan_removal

DATA = Path(__file__).parent / "data"
LOCALNET = (
    '-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections"'
    " -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
)


def restored(text: str, table: str) -> list[str]:
    """The lines that remove kube-proxy's part of one table."""
    (found,) = (saved for saved in parse_saved(text) if saved.name == table)
    return restore_input(plan_removal(found)).splitlines()


def applied(text: str, table: str) -> list[str]:
    """The rules and chains of a table after the removal, as iptables-restore --noflush performs it."""
    lines = text.partition(f"*{table}\n")[2].partition("COMMIT")[0].splitlines()
    for order in restored(text, table):
        if order.startswith(":"):
            lines = [line for line in lines if not line.startswith(f"-A {order[1:].split()[0]} ")]
        elif order.startswith("-D "):
            lines.remove(f"-A {order[3:]}")
        elif order.startswith("-X "):
            chain = order[3:]
            assert not any(line.endswith(f" {chain}") and not line.startswith(":") for line in lines), chain
            lines = [line for line in lines if not line.startswith(f":{chain} ")]
    return lines


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
            TableRule("PREROUTING", "KUBE-SERVICES", "kubernetes service portals"),
            id="a jump",
        ),
        pytest.param("-A A -g B", TableRule("A", "B"), id="a goto"),
        pytest.param("-A A -p tcp", TableRule("A"), id="no target"),
        pytest.param("-A A", TableRule("A"), id="nothing at all"),
        pytest.param(
            '-A A -m comment --comment "say \\"-j KUBE-SERVICES\\"" -j DROP',
            TableRule("A", "DROP", 'say "-j KUBE-SERVICES"'),
            id="a target inside a comment",
        ),
        pytest.param("-A A -m comment --comment dns -j B", TableRule("A", "B", "dns"), id="a comment of one word"),
        pytest.param("[12:720] -A A -j B", TableRule("A", "B"), id="with counters"),
    ],
)
def test_a_rule_is_read(line: str, expected: TableRule) -> None:
    (table,) = parse_saved(f"*nat\n:A - [0:0]\n{line}\nCOMMIT\n")
    (rule,) = table.rules

    assert (rule.chain, rule.target, rule.comment) == (expected.chain, expected.target, expected.comment)


def test_tables_and_policies_are_read() -> None:
    tables = parse_saved((DATA / "iptables-mode.txt").read_text())

    assert [table.name for table in tables] == ["mangle", "filter", "nat"]
    assert tables[1].chains["FORWARD"] == "DROP"
    assert tables[1].chains["KUBE-FORWARD"] is None


@pytest.mark.parametrize("text", ["", "*nat\n", "*nat\n:A - [0:0]\n-A A -j B\n", "what is this\n"])
def test_a_text_that_ends_early_has_no_table(text: str) -> None:
    assert parse_saved(text) == ()


def test_of_the_iptables_mode_only_what_others_made_stays() -> None:
    text = (DATA / "iptables-mode.txt").read_text()

    left = {table: [line for line in applied(text, table) if line.startswith("-A")] for table in ("filter", "nat")}

    assert left["filter"] == [
        "-A INPUT -j KUBE-FIREWALL",
        '-A INPUT -s 198.51.100.7/32 -m comment --comment "somebody\'s own: \\"-j KUBE-SERVICES\\"" -j DROP',
        "-A FORWARD -j DOCKER-USER",
        "-A FORWARD -s 10.244.0.0/16 -j ACCEPT",
        "-A FORWARD -d 10.244.0.0/16 -j ACCEPT",
        "-A OUTPUT -j KUBE-FIREWALL",
        "-A DOCKER-USER -j RETURN",
        LOCALNET,
    ]
    assert left["nat"] == [
        "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
        "-A POSTROUTING -s 10.244.0.0/16 ! -d 10.244.0.0/16 -j MASQUERADE",
        "-A KUBE-MARK-DROP -j MARK --set-xmark 0x8000/0x8000",
    ]


@pytest.mark.parametrize(
    ("mode", "table", "chains"),
    [
        pytest.param("iptables", "mangle", {"KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"}, id="iptables mangle"),
        pytest.param("iptables", "filter", {"KUBE-FIREWALL", "KUBE-KUBELET-CANARY"}, id="iptables filter"),
        pytest.param("iptables", "nat", {"KUBE-KUBELET-CANARY", "KUBE-MARK-DROP"}, id="iptables nat"),
        pytest.param("ipvs", "filter", {"KUBE-FIREWALL", "KUBE-KUBELET-CANARY"}, id="ipvs filter"),
        pytest.param("ipvs", "nat", {"KUBE-KUBELET-CANARY"}, id="ipvs nat"),
    ],
)
def test_of_its_modes_only_the_kubelets_chains_stay(mode: str, table: str, chains: set[str]) -> None:
    left = applied((DATA / f"{mode}-mode.txt").read_text(), table)

    assert {line[1:].split()[0] for line in left if line.startswith(":KUBE")} == chains


def test_a_table_is_changed_in_one_step() -> None:
    text = '*nat\n:OUTPUT ACCEPT [3:9]\n:KUBE-SVC-A - [0:0]\n-A OUTPUT -m comment --comment "kubernetes x" -j KUBE-SVC-A\nCOMMIT\n'

    assert restored(text, "nat") == [
        "*nat",
        ":KUBE-SVC-A - [0:0]",
        '-D OUTPUT -m comment --comment "kubernetes x" -j KUBE-SVC-A',
        "-X KUBE-SVC-A",
        "COMMIT",
    ]

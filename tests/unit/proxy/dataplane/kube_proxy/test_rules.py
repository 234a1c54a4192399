"""What of a table goes, what stays, and what is printed."""

import pytest

from nodeagent.proxy.dataplane.kube_proxy.rules import IptablesTable, Kept, TableRule, plan_removal

BUILT_IN = {"PREROUTING": "ACCEPT", "OUTPUT": "ACCEPT", "POSTROUTING": "ACCEPT"}
PORTALS = TableRule("PREROUTING", "KUBE-SERVICES", "kubernetes service portals")
MASQUERADING = TableRule("POSTROUTING", "KUBE-POSTROUTING", "kubernetes postrouting rules")


def nat(*rules: TableRule) -> IptablesTable:
    """A nat table with the chains the rules name; those of built-in chains have a policy."""
    named = [name for rule in rules for name in (rule.chain, rule.target) if name]
    return IptablesTable("nat", dict.fromkeys(named) | BUILT_IN, rules)


def test_its_chains_go_with_their_rules_and_with_the_jumps_to_them() -> None:
    table = nat(
        PORTALS,
        TableRule("KUBE-SERVICES", "KUBE-SVC-A", "default/web cluster IP"),
        TableRule("KUBE-SVC-A", "KUBE-SEP-A"),
        TableRule("KUBE-SVC-A", "KUBE-SEP-B"),
        TableRule("KUBE-SEP-A"),
        TableRule("KUBE-SEP-B"),
    )

    removal = plan_removal(table)

    assert removal.rules == (PORTALS,)
    assert removal.chains == {"KUBE-SERVICES": 1, "KUBE-SVC-A": 2, "KUBE-SEP-A": 1, "KUBE-SEP-B": 1}
    assert not removal.kept


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param((), id="an empty table"),
        pytest.param((TableRule("OUTPUT", "KUBE-FIREWALL"), TableRule("KUBE-FIREWALL")), id="the kubelet's"),
        pytest.param((TableRule("PREROUTING", "CNI-DN-1", "kubernetes service portals"),), id="its comment, no target"),
        pytest.param((TableRule("KUBE-MARK-DROP"),), id="an old kubelet's"),
    ],
)
def test_a_table_without_anything_of_its_own_is_left_alone(rules: tuple[TableRule, ...]) -> None:
    assert plan_removal(nat(*rules)).empty


def test_a_port_mapping_that_marks_for_masquerading_keeps_what_makes_the_mark_work() -> None:
    mark = TableRule("CNI-HOSTPORT-SETMARK", "KUBE-MARK-MASQ")
    table = nat(
        PORTALS,
        MASQUERADING,
        mark,
        TableRule("KUBE-SERVICES", "KUBE-MARK-MASQ"),
        TableRule("KUBE-MARK-MASQ"),
        TableRule("KUBE-POSTROUTING"),
    )

    removal = plan_removal(table)

    assert removal.rules == (PORTALS,)
    assert set(removal.chains) == {"KUBE-SERVICES"}
    assert removal.kept == (
        Kept("KUBE-MARK-MASQ", "the rule CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ leads to it"),
        Kept("KUBE-POSTROUTING", "it is where the mark of KUBE-MARK-MASQ, which stays, has its effect"),
    )


def test_a_chain_stays_with_all_that_it_leads_to() -> None:
    table = nat(
        TableRule("MINE", "KUBE-SVC-A"),
        TableRule("KUBE-SVC-A", "KUBE-SEP-A"),
        TableRule("KUBE-SEP-A", "KUBE-SVC-A"),
        TableRule("KUBE-SVC-B", "KUBE-SEP-A"),
    )

    removal = plan_removal(table)

    assert set(removal.chains) == {"KUBE-SVC-B"}
    assert [kept.chain for kept in removal.kept] == ["KUBE-SVC-A", "KUBE-SEP-A"]


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(TableRule("PREROUTING", "KUBE-SERVICES"), id="without its comment"),
        pytest.param(TableRule("PREROUTING", "KUBE-SERVICES", "my way"), id="with another comment"),
        pytest.param(TableRule("MINE", "KUBE-SERVICES", "kubernetes service portals"), id="in a chain of somebody's"),
    ],
)
def test_a_jump_that_is_not_its_own_stays_and_keeps_the_chain(rule: TableRule) -> None:
    removal = plan_removal(nat(PORTALS, rule, TableRule("KUBE-SERVICES")))

    assert removal.rules == (PORTALS,)
    assert [kept.chain for kept in removal.kept] == ["KUBE-SERVICES"]


@pytest.mark.parametrize(
    ("policy", "expected"), [pytest.param("DROP", True, id="drops"), pytest.param("ACCEPT", False, id="accepts")]
)
def test_a_note_says_that_forwarding_may_depend_on_removed_rules(policy: str, expected: bool) -> None:
    jump = TableRule("FORWARD", "KUBE-FORWARD", "kubernetes forwarding rules")
    removal = plan_removal(IptablesTable("filter", {"FORWARD": policy, "KUBE-FORWARD": None}, (jump,)))

    assert removal.accepts_in_forward is expected
    assert any("FORWARD drops by policy" in note for note in removal.notes()) is expected


def test_every_rule_and_chain_has_its_line() -> None:
    table = nat(PORTALS, TableRule("KUBE-SERVICES"), TableRule("KUBE-SERVICES"), TableRule("KUBE-SVC-A"))

    assert list(plan_removal(table).lines()) == [
        "nat: rule PREROUTING -j KUBE-SERVICES (kubernetes service portals)",
        "nat: chain KUBE-SERVICES (2 rules)",
        "nat: chain KUBE-SVC-A (1 rule)",
    ]

"""Somebody else edits a plain table: the next look notices, and the next pass puts it right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.dataplane.driver import kernel_table
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.image.image import TableImage, frontend_key
from nodeagent.proxy.dataplane.program import schema
from nodeagent.wire.netlink.nf_tables.element_reading import ElementDump
from nodeagent.wire.netlink.nf_tables.ruleset_objects import read_set

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
KEY = frontend_key("10.96.0.10", Protocol.TCP, 80)

EDITS = [
    pytest.param("flush ruleset", id="flush ruleset"),
    pytest.param("delete table ip nodeagent", id="delete table"),
    pytest.param("flush table ip nodeagent", id="flush all rules"),
    pytest.param("flush chain ip nodeagent prerouting", id="flush a chain"),
    pytest.param("add rule ip nodeagent prerouting accept", id="a rule more"),
    pytest.param("insert rule ip nodeagent prerouting ip saddr 1.2.3.4 drop", id="a rule in front"),
    pytest.param("add chain ip nodeagent theirs", id="a chain more"),
    pytest.param("flush map ip nodeagent frontends", id="flush the frontends"),
    pytest.param("delete element ip nodeagent frontends { 10.96.0.10 . tcp . 80 }", id="an element less"),
    pytest.param("add element ip nodeagent cluster-ips { 10.9.9.9 }", id="an element more"),
    pytest.param("delete element ip nodeagent dispatch { 0:2 }", id="a class leads nowhere"),
    pytest.param("flush set ip nodeagent service-cidrs", id="no service CIDRs"),
    pytest.param("flush set ip nodeagent nodeport-addresses", id="no node port addresses"),
    pytest.param("delete element ip nodeagent pod-cidrs { 10.244.0.0/16 }", id="a pod CIDR less"),
    pytest.param("add element ip nodeagent pod-cidrs { 172.16.0.0/12 }", id="a pod CIDR more"),
    pytest.param("flush set ip nodeagent allowed-sources", id="no allowed sources"),
    pytest.param("delete table ip nodeagent; add table ip nodeagent", id="an empty table in its place"),
    pytest.param("add set ip nodeagent theirs { type ipv4_addr; }", id="a set more"),
    pytest.param("chain ip nodeagent prerouting { policy drop; }", id="everything else is dropped"),
    pytest.param("add chain ip nodeagent theirs { type route hook output priority 0; }", id="a chain of another type"),
    pytest.param("table ip nodeagent { flags dormant; }", id="the table sleeps"),
    pytest.param("add element ip nodeagent frontends { * : 0:2 }", id="every address is a frontend"),
    pytest.param("add element ip nodeagent affinity { * : 10.9.9.9 . 80 }", id="every client is known"),
    pytest.param("add element ip nodeagent allowed-sources { * }", id="every source is allowed"),
]
COUNTED = pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])


def without_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a kernel that does not tell how many elements a set has (Linux 6.1)."""
    monkeypatch.setattr(kernel_table, "read_set", lambda data: replace(read_set(data), count=None))


@pytest.fixture
def states(service: MakeService) -> list[ServiceState]:
    return [
        service("web", "10.96.0.10", "10.244.1.1", "10.244.2.2", allowed=("203.0.113.0/24",), node_port=30080),
        service("shop", "10.96.0.11", "10.244.2.3", affinity=60),
    ]


@COUNTED
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_noticed_at_the_next_look_and_repaired_by_the_next_pass(
    kernel: Any, states: list[ServiceState], edit: str, monkeypatch: pytest.MonkeyPatch, *, counted: bool
) -> None:
    if not counted:
        without_counts(monkeypatch)
    agent = kernel.start()
    agent.sync(*states)
    right = kernel.contents()
    kernel.nft(edit.replace("; add", "\nadd"))

    assert agent.changed_by_others()
    agent.sync()

    found = kernel.contents()
    assert found.image == right.image
    assert found.policies == right.policies
    assert found.header.flags == right.header.flags
    assert found.verdicts == right.verdicts
    assert [rule.chain for rules in found.rules.values() for rule in rules] == [
        rule.chain for chain in found.rules for rule in right.rules[chain]
    ]
    assert agent.changed_by_others() is False
    assert agent.sync().messages == 0


@pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
def test_an_element_for_every_key_in_a_table_of_a_dead_agent_does_not_hinder_the_next(
    kernel: Any, states: list[ServiceState], ownership: Ownership
) -> None:
    """The kernel gives it among the elements and does not count it: that looks like a dump others got in between of."""
    first = kernel.start(ownership)
    first.sync(*states)
    right = kernel.image()
    first.die()
    kernel.nft("add element ip nodeagent frontends { * : 0:2 }")

    kernel.start(ownership).sync(*states)

    assert kernel.image() == right
    assert "*" not in kernel.nft("list map ip nodeagent frontends")


def _without_order(image: TableImage) -> dict[str, Any]:
    """Returns the image, with the endpoints of each list in no order: any endpoint may have any slot."""
    lists: dict[bytes, set[bytes]] = {}
    for key, endpoint in image[schema.BACKENDS].items():
        lists.setdefault(key[:-4], set()).add(endpoint)
    return {**image, schema.BACKENDS: image[schema.BACKENDS].keys(), "lists": lists}


EDITS_OF_ENDPOINTS = [
    pytest.param(
        "delete element ip nodeagent backends { 10.96.0.10 . tcp . 80 . 1 }\n"
        "add element ip nodeagent backends { 10.96.0.10 . tcp . 80 . 1 : 10.244.1.1 . 8080 }",
        id="one endpoint twice",
    ),
    pytest.param("delete element ip nodeagent backends { 10.96.0.10 . tcp . 80 . 0 }", id="a slot less"),
    pytest.param(
        "add element ip nodeagent backends { 10.96.0.10 . tcp . 80 . 2 : 10.9.9.9 . 80 }", id="a slot beyond the count"
    ),
    pytest.param(
        "delete element ip nodeagent backends { 10.96.0.10 . tcp . 80 . 1 }\n"
        "add element ip nodeagent backends { 10.96.0.10 . tcp . 80 . 2 : 10.9.9.9 . 80 }",
        id="another slot in place of ours",
    ),
    pytest.param(
        "delete element ip nodeagent frontends { 10.96.0.10 . tcp . 80 }\n"
        'add element ip nodeagent frontends { 10.96.0.10 . tcp . 80 comment "default/web:http" : 1:2 }',
        id="a class of another list",
    ),
    pytest.param("add element ip nodeagent nodeport-backends { tcp . 30081 . 0 : 10.9.9.9 . 80 }", id="of a node port"),
]


@pytest.mark.parametrize("fetched", [False, True], ids=["dumped", "fetched by key"])
@pytest.mark.parametrize("edit", [*EDITS, *EDITS_OF_ENDPOINTS])
def test_an_edit_made_while_no_agent_ran_is_repaired_by_the_first_pass_of_the_next(
    kernel: Any, states: list[ServiceState], edit: str, *, fetched: bool
) -> None:
    first = kernel.start()
    first.sync(*states)
    right = kernel.contents()
    first.die()
    kernel.nft(edit.replace("; add", "\nadd"))

    second = kernel.start()
    if fetched:
        second.driver._table._fetch_above = 0
    second.sync(*states)

    found = kernel.contents()
    assert _without_order(found.image) == _without_order(right.image)
    assert (found.policies, found.header.flags, found.verdicts) == (right.policies, right.header.flags, right.verdicts)
    assert {chain: len(rules) for chain, rules in found.rules.items()} == {
        chain: len(rules) for chain, rules in right.rules.items()
    }
    assert not found.catch_all
    assert second.changed_by_others() is False
    assert second.sync().messages == 0


def test_a_foreign_element_in_the_place_of_ours_is_found_by_the_full_comparison(
    kernel: Any, states: list[ServiceState]
) -> None:
    """Counting sees no difference; the periodic comparison reads every element."""
    agent = kernel.start()
    agent.sync(*states)
    right = kernel.image()
    kernel.nft("delete element ip nodeagent frontends { 10.96.0.10 . tcp . 80 }")
    kernel.nft("add element ip nodeagent frontends { 10.96.0.99 . tcp . 80 : 0:1 }")

    agent.driver.forget()
    agent.sync()

    assert kernel.image() == right


def test_without_counts_a_look_reads_only_some_elements_of_a_big_set_and_sees_it_flushed(
    kernel: Any, service: MakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_counts(monkeypatch)
    agent = kernel.start()
    agent.sync(*(service(f"s{n}", f"10.96.{n >> 8}.{n & 255}", f"10.244.{n >> 8}.{n & 255}") for n in range(1500)))
    right = kernel.image()
    dumped: list[str] = []
    elements: Callable[[str], ElementDump] = agent.driver._table.elements

    def dump(name: str) -> ElementDump:
        dumped.append(name)
        return elements(name)

    monkeypatch.setattr(agent.driver._table, "elements", dump)
    kernel.nft("add table inet theirs")
    assert not agent.changed_by_others()
    assert dumped
    assert not {schema.BACKENDS, schema.FRONTENDS, schema.CLUSTER_IPS} & set(dumped)

    kernel.nft("flush map ip nodeagent backends")

    assert agent.changed_by_others()
    agent.sync()
    assert kernel.image() == right


def test_changes_of_other_tables_are_ignored(kernel: Any, states: list[ServiceState]) -> None:
    agent = kernel.start()
    agent.sync(*states)
    kernel.nft("add table ip other; add chain ip other services; add table ip6 nodeagent")

    generation = kernel.generation()
    assert agent.changed_by_others() is False
    assert agent.sync().messages == 0
    assert kernel.generation() == generation


def test_both_families_write_without_disturbing_each_other(
    kernel: Any, states: list[ServiceState], service: MakeService
) -> None:
    four, six = kernel.start(), kernel.start(family=Family.IPV6)
    four.sync(*states)
    six.sync(service("web", "fd00:10:96::10", "fd00:244:2::2"))

    assert [four.changed_by_others(), six.changed_by_others()] == [False, False]


def test_an_element_somebody_put_in_the_way_of_a_new_service_is_replaced(
    kernel: Any, states: list[ServiceState], service: MakeService
) -> None:
    """The kernel refuses another value for a key it has; that is no fault of the service."""
    agent = kernel.start()
    agent.sync(*states)
    kernel.nft("add element ip nodeagent frontends { 10.96.0.12 . tcp . 80 : 0:2 }")

    agent.sync(service("late", "10.96.0.12", "10.244.2.8"))

    assert agent.driver.problems == ()
    key = frontend_key("10.96.0.12", Protocol.TCP, 80)
    assert kernel.elements(schema.FRONTENDS)[key].endswith(b"default/late:http")


def test_a_pass_rebuilds_a_table_that_was_deleted_unnoticed(
    kernel: Any, states: list[ServiceState], service: MakeService
) -> None:
    """What the kernel refuses then is no sign of a kernel that lacks something."""
    agent = kernel.start()
    agent.sync(*states)
    kernel.nft("delete table ip nodeagent")

    report = agent.sync(service("late", "10.96.0.12", "10.244.2.8", "10.244.2.9", "10.244.2.10"))

    assert report.new_table
    assert len(kernel.elements(schema.CLUSTER_IPS)) == 3


def test_an_element_that_is_gone_already_does_not_hinder_a_service_that_goes(
    kernel: Any, states: list[ServiceState]
) -> None:
    agent = kernel.start()
    agent.sync(*states)
    kernel.nft("delete element ip nodeagent frontends { 10.96.0.10 . tcp . 80 }")

    agent.sync(gone=(ObjectKey("default", "web"),))

    assert agent.driver.problems == ()
    assert KEY not in kernel.elements(schema.FRONTENDS)

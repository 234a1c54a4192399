"""The driver against a real kernel: create, adopt, replace, rewrite, and what it leaves alone."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent.model.addresses import Family, Protocol, pack_address
from nodeagent.model.frontend import Scope, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.proxy.dataplane.driver.belief import Ownership
from nodeagent.proxy.dataplane.driver.ownership import PROBE_TABLE, probe_ownership
from nodeagent.proxy.dataplane.driver.removal import remove_tables
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import NotPermitted
from nodeagent.proxy.dataplane.image.affinity import affinity_id
from nodeagent.proxy.dataplane.image.image import endpoint_value, frontend_key, packed_class, packed_protocol
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.classes import PickClass

pytestmark = pytest.mark.kernel

MakeService = Callable[..., ServiceState]
OWNERSHIPS = pytest.mark.parametrize("ownership", Ownership, ids=lambda ownership: ownership.value)
FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda family: family.value)
ADDRESSES = {
    Family.IPV4: ("10.96.0.10", "10.244.1.1", "10.244.2.2", "10.244.2.3"),
    Family.IPV6: ("fd00:10:96::10", "fd00:244:1::1", "fd00:244:2::2", "fd00:244:2::3"),
}
KEY = frontend_key("10.96.0.10", Protocol.TCP, 80)

FOREIGN = """
table ip kube-proxy {
  map services { type ipv4_addr . inet_service : verdict; elements = { 10.96.0.10 . 80 : goto there }; }
  chain there { counter packets 7 bytes 420; }
  chain services { type nat hook prerouting priority -100; policy accept; ip daddr . tcp dport vmap @services; }
}
table inet firewall { chain input { type filter hook input priority 0; policy accept; tcp dport 22 accept; }; }
"""


@pytest.fixture
def web(service: MakeService) -> ServiceState:
    return service("web", "10.96.0.10", "10.244.1.1", "10.244.2.2", affinity=10800, node_port=30080)


@FAMILIES
@OWNERSHIPS
def test_the_first_pass_makes_the_table_and_the_second_writes_nothing(
    kernel: Any, service: MakeService, ownership: Ownership, family: Family
) -> None:
    address, *endpoints = ADDRESSES[family]
    agent = kernel.start(ownership, family)
    report = agent.sync(service("web", address, *endpoints, affinity=60, allowed=(f"{address}/32",), node_port=30080))
    after = kernel.generation()

    assert report.new_table
    classes = kernel.image(family)[schema.FRONTENDS][frontend_key(address, Protocol.TCP, 80)]
    assert classes == packed_class(PickClass(3, sticky=True).number) + b"default/web:http"
    assert (agent.sync().touched, agent.sync().messages) == (0, 0)
    assert kernel.generation() == after


@FAMILIES
def test_a_restart_with_nothing_changed_writes_nothing(kernel: Any, service: MakeService, family: Family) -> None:
    address, *endpoints = ADDRESSES[family]
    state = service("web", address, *endpoints, affinity=60, allowed=(f"{address}/32",), node_port=30080)
    kernel.start(family=family).sync(state)
    generation = kernel.generation()

    report = kernel.start(family=family).sync(state)

    assert (report.touched, report.messages) == (0, 0)
    assert kernel.generation() == generation


@FAMILIES
@OWNERSHIPS
def test_the_first_affinity_of_a_table_that_was_adopted_adds_its_base_chains(
    kernel: Any, service: MakeService, ownership: Ownership, family: Family
) -> None:
    """Together with taking over an owned table the kernel accepts no new base chain."""
    address, *endpoints = ADDRESSES[family]
    first = kernel.start(ownership, family)
    first.sync(service("web", address, *endpoints))
    handle = kernel.contents(family).header.handle
    assert "prerouting-translated" not in kernel.contents(family).hooks
    first.die()

    report = kernel.start(ownership, family).sync(service("web", address, *endpoints, affinity=60))

    assert not report.new_table
    assert kernel.contents(family).header.handle == handle
    assert {"prerouting-translated", "output-translated", "learn-60"} <= set(kernel.contents(family).hooks)


def test_a_service_of_the_other_family_is_no_work_and_one_that_changes_to_it_leaves(
    kernel: Any, service: MakeService
) -> None:
    agent = kernel.start()
    four = service("web", "10.96.0.10", "10.244.2.1")
    agent.sync(four)
    assert (agent.sync(service("six", "fd00:10:96::11", "fd00:244:2::1")).messages, agent.sync().messages) == (0, 0)

    agent.sync(service("web", "fd00:10:96::10", "fd00:244:2::2"))
    assert kernel.elements(schema.FRONTENDS) == kernel.elements(schema.BACKENDS) == {}

    agent.sync(four)
    assert len(kernel.elements(schema.FRONTENDS)) == len(kernel.elements(schema.BACKENDS)) == 1
    agent.sync(gone=(four.key,))
    assert kernel.elements(schema.FRONTENDS) == kernel.elements(schema.BACKENDS) == {}


def test_a_restart_writes_only_what_changed_meanwhile(kernel: Any, service: MakeService) -> None:
    kernel.start().sync(
        service("web", "10.96.0.10", "10.244.2.1", "10.244.2.2", "10.244.2.3"),
        service("shop", "10.96.0.11", "10.244.2.4"),
        service("old", "10.96.0.12", "10.244.2.5"),
    )
    handle = kernel.contents().header.handle

    report = kernel.start().sync(
        service("web", "10.96.0.10", "10.244.2.1", "10.244.2.3"), service("shop", "10.96.0.11", "10.244.2.4")
    )

    # Endpoint: its slot and the last one, the class. The old service: ClusterIP, frontend, backend.
    assert report.touched == 3 + 3
    assert kernel.contents().header.handle == handle
    assert set(kernel.elements(schema.CLUSTER_IPS)) == {pack_address("10.96.0.10"), pack_address("10.96.0.11")}


@FAMILIES
def test_a_block_of_cluster_ips_comes_and_goes_between_two_others(
    kernel: Any, service: MakeService, family: Family
) -> None:
    blocks = {
        Family.IPV4: ("10.96.0.0", "10.97.0.0", "10.98.0.0"),
        Family.IPV6: ("fd00:96::", "fd00:96::1:0", "fd00:96::2:0"),
    }
    packed = [pack_address(block) for block in blocks[family]]
    states = [service(f"at-{n}", block, ADDRESSES[family][1]) for n, block in enumerate(blocks[family])]
    between = states.pop(1)
    agent = kernel.start(family=family)

    agent.sync(*states)
    assert set(kernel.elements(schema.CLUSTER_IP_ONLY_BLOCKS, family)) == {packed[0], packed[2]}
    agent.sync(between)
    assert set(kernel.elements(schema.CLUSTER_IP_ONLY_BLOCKS, family)) == set(packed)
    assert kernel.start(family=family).sync(*states, between).touched == 0
    agent = kernel.start(family=family)
    agent.sync(*states, between)
    agent.sync(gone=(between.key,))
    assert set(kernel.elements(schema.CLUSTER_IP_ONLY_BLOCKS, family)) == {packed[0], packed[2]}


def test_an_owned_table_outlives_its_owner_and_is_adopted_not_remade(kernel: Any, web: ServiceState) -> None:
    first = kernel.start(Ownership.OWNED)
    first.sync(web)
    before = kernel.contents()
    first.die()
    orphan = kernel.contents()
    assert orphan.image == before.image

    second = kernel.start(Ownership.OWNED)
    report = second.sync(web)

    assert (report.touched, report.new_table) == (0, False)
    assert kernel.contents().header.handle == before.header.handle
    assert kernel.contents().image == before.image
    assert kernel.command("nft", "delete", "table", "ip", "nodeagent").returncode != 0


def test_a_second_agent_learns_of_the_first(kernel: Any, web: ServiceState) -> None:
    kernel.start(Ownership.OWNED).sync(web)
    with pytest.raises(NotPermitted, match="owned by another process"):
        kernel.start(Ownership.OWNED).sync(web)


@pytest.mark.parametrize(
    "command",
    [
        "flush ruleset",
        "delete table ip nodeagent",
        "flush table ip nodeagent",
        "flush chain ip nodeagent prerouting",
        "flush map ip nodeagent frontends",
        "delete element ip nodeagent frontends { 10.96.0.10 . tcp . 80 }",
        "add rule ip nodeagent prerouting accept",
    ],
)
def test_an_owned_table_cannot_be_changed_by_anybody_else(kernel: Any, web: ServiceState, command: str) -> None:
    agent = kernel.start(Ownership.OWNED)
    agent.sync(web)
    before = kernel.contents()

    kernel.command("nft", "-f", "-", stdin=command)

    after = kernel.contents()
    assert (after.header, after.image, after.rules) == (before.header, before.image, before.rules)
    assert agent.changed_by_others() is False


@pytest.mark.parametrize(("before", "after"), [(Ownership.PLAIN, Ownership.OWNED), (Ownership.OWNED, Ownership.PLAIN)])
def test_another_kind_of_ownership_replaces_the_table_and_keeps_what_clients_learned(
    kernel: Any, web: ServiceState, before: Ownership, after: Ownership
) -> None:
    first = kernel.start(before)
    first.sync(web)
    client = learn(kernel, first)
    first.die()
    handle = kernel.contents().header.handle

    report = kernel.start(after).sync(web)

    assert report.new_table
    assert kernel.contents().header.handle != handle
    assert kernel.nft("list tables") == "table ip nodeagent\n"
    assert set(kernel.elements(schema.AFFINITY)) == {client}


def learn(kernel: Any, agent: Any, endpoint: str = "10.244.2.2") -> bytes:
    """As if 10.244.9.9 had connected to the service: its affinity entry, written by the table's owner."""
    number = affinity_id(ServicePortName(ObjectKey("default", "web"), "http", Protocol.TCP), Scope.CLUSTER)
    key = pack_address("10.244.9.9") + packed_protocol(Protocol.TCP) + packed_class(number)
    transaction = Transaction(Family.IPV4, {})
    transaction.restore_affinity({key: (endpoint_value(endpoint, 8080), 10_800_000, 5_000_000)})
    kernel.run(lambda: agent.socket.commit(transaction))
    return key


OTHER_TABLES = [
    pytest.param('table ip nodeagent { comment "schema 0: of an older agent"; chain old { }; }', id="another schema"),
    pytest.param("table ip nodeagent { map frontends { type ipv4_addr : mark; }; }", id="somebody else's"),
    pytest.param("table ip nodeagent { }", id="empty"),
]


@OWNERSHIPS
@pytest.mark.parametrize("text", OTHER_TABLES)
def test_a_table_of_our_name_that_is_not_ours_is_replaced(
    kernel: Any, web: ServiceState, ownership: Ownership, text: str
) -> None:
    kernel.nft(text)

    report = kernel.start(ownership).sync(web)

    assert report.new_table
    assert kernel.nft("list tables") == "table ip nodeagent\n"
    assert kernel.elements(schema.BACKENDS)


@OWNERSHIPS
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(ProgramOptions(PodDetection.CIDR, masquerade_all=True), id="masquerade all"),
        pytest.param(ProgramOptions(PodDetection.INTERFACE, "cni0"), id="pods by bridge"),
        pytest.param(ProgramOptions(), id="no pods known"),
    ],
)
def test_other_options_rewrite_the_rules_in_place(
    kernel: Any, web: ServiceState, ownership: Ownership, options: ProgramOptions
) -> None:
    first = kernel.start(ownership)
    first.sync(web)
    client = learn(kernel, first)
    before, generation = kernel.contents(), kernel.generation()
    first.die()

    second = kernel.start(ownership, options=options)
    report = second.sync(web)

    after = kernel.contents()
    assert second.sync().messages == 0
    assert (report.new_table, report.touched) == (False, 0)
    assert kernel.generation() == generation + (2 if ownership is Ownership.OWNED else 1), (
        "an owned one is claimed first"
    )
    assert after.header.handle == before.header.handle
    assert after.rules != before.rules
    assert after.image == before.image
    assert set(kernel.elements(schema.AFFINITY)) == {client}


def test_a_client_of_an_endpoint_that_left_is_forgotten_and_others_are_not(
    kernel: Any, service: MakeService, web: ServiceState
) -> None:
    agent = kernel.start()
    agent.sync(web)
    client = learn(kernel, agent)
    agent.sync(service("web", "10.96.0.10", "10.244.2.2", affinity=10800, node_port=30080))
    agent.purge()
    assert set(kernel.elements(schema.AFFINITY)) == {client}

    agent.sync(service("web", "10.96.0.10", "10.244.1.1", affinity=10800, node_port=30080))
    agent.purge()
    assert kernel.elements(schema.AFFINITY) == {}
    assert agent.changed_by_others() is False


@OWNERSHIPS
def test_tables_of_others_stay_as_they_are(kernel: Any, web: ServiceState, ownership: Ownership) -> None:
    kernel.nft(FOREIGN)
    theirs = [kernel.nft(f"list table {name}") for name in ("ip kube-proxy", "inet firewall")]
    agent = kernel.start(ownership)
    agent.sync(web)
    agent.sync(gone=(web.key,))
    agent.die()
    kernel.start(ownership, options=ProgramOptions()).sync(web)

    assert [kernel.nft(f"list table {name}") for name in ("ip kube-proxy", "inet firewall")] == theirs


def test_removal_takes_both_tables_and_nothing_else(kernel: Any, web: ServiceState, service: MakeService) -> None:
    kernel.nft(FOREIGN)
    agents = kernel.start(Ownership.OWNED), kernel.start(Ownership.PLAIN, Family.IPV6)
    agents[0].sync(web)
    agents[1].sync(service("web", "fd00:10:96::10", "fd00:244:2::2"))
    remover = kernel.start()
    with pytest.raises(NotPermitted):
        kernel.run(lambda: remove_tables(remover.socket))
    agents[0].die()

    assert set(kernel.run(lambda: remove_tables(remover.socket))) == set(Family)
    assert kernel.run(lambda: remove_tables(remover.socket)) == ()
    assert kernel.nft("list tables").split() == ["table", "ip", "kube-proxy", "table", "inet", "firewall"]


def test_the_probe_for_owned_tables_leaves_nothing(kernel: Any) -> None:
    agent = kernel.start()
    ownership = kernel.run(lambda: probe_ownership(agent.socket))
    assert ownership in Ownership
    assert PROBE_TABLE not in kernel.nft("list tables")

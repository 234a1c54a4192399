"""Which interfaces a flowtable has, and how they are kept up with."""

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.problem import Problem
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.driver.transaction import Transaction
from nodeagent.proxy.dataplane.errors import CommitRejected, Rejection
from nodeagent.proxy.dataplane.flowtable_devices import REFUSED, FlowtableDevices, forwarding_devices
from nodeagent.proxy.dataplane.program import schema
from nodeagent.wire.netlink.nf_tables.ruleset_objects import pack_flowtable, read_flowtable
from nodeagent.wire.netlink.rtnetlink import Link
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_GETFLOWTABLE, NFT_MSG_NEWFLOWTABLE

NOBODY = frozenset[str]()


def link(name: str, index: int = 7, kind: str = "veth", master: int = 0) -> Link:
    return Link(index, name, kind, True, True, True, "", master)


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        pytest.param(link("eth0", kind=""), True, id="hardware"),
        pytest.param(link("veth1"), True, id="veth of a pod"),
        pytest.param(link("cni0", kind="bridge"), True, id="bridge"),
        pytest.param(link("veth1", master=3), False, id="port of a bridge"),
        pytest.param(link("eth0.7", kind="vlan"), True, id="VLAN"),
        pytest.param(link("flannel.1", kind="vxlan"), True, id="tunnel"),
        pytest.param(link("lo", index=1, kind=""), False, id="loopback"),
        pytest.param(link("nodeagent0", kind="dummy"), False, id="service interface"),
        pytest.param(link("kube-bridge", kind="bridge"), True, id="bridge that is not ours"),
        pytest.param(link("service", kind="bridge"), False, id="service interface that is a bridge"),
        pytest.param(link("kube-ipvs0", kind="dummy"), False, id="dummy of another program"),
    ],
)
def test_which_interfaces_are_devices(one: Link, wanted: bool) -> None:
    assert forwarding_devices([one], excluding="service") == (frozenset({one.name}) if wanted else NOBODY)


class Kernel:
    """Flowtables by family; what is in `refused` cannot be added."""

    def __init__(self, held: dict[Family, set[str]]) -> None:
        self.held = held
        self.refused: set[str] = set()
        self.commits = 0
        self.dumps = 0

    def generation(self) -> int:
        return self.commits

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[memoryview]:
        assert kind == NFT_MSG_GETFLOWTABLE
        assert body
        self.dumps += 1
        for one, devices in self.held.items():
            if family == {Family.IPV4: 2, Family.IPV6: 10}[one]:
                yield memoryview(pack_flowtable("another", schema.FLOWTABLE, {"theirs"}))
                yield memoryview(pack_flowtable(schema.TABLE, schema.FLOWTABLE, devices))

    def commit(self, transaction: Transaction) -> None:
        if transaction.empty:
            return
        changes = [(message.kind, read_flowtable(memoryview(message.body)).devices) for message in transaction.messages]
        for kind, devices in changes:
            if kind == NFT_MSG_NEWFLOWTABLE and devices & self.refused:
                raise CommitRejected((Rejection("devices", 95, "Operation not supported"),))
        for kind, devices in changes:
            held = self.held[transaction.family]
            held.update(devices) if kind == NFT_MSG_NEWFLOWTABLE else held.difference_update(devices)
        self.commits += 1


class Scene:
    def __init__(self, held: dict[Family, set[str]], *names: str) -> None:
        self.kernel = Kernel(held)
        self.names = set(names)
        self.reports: list[tuple[Problem, ...]] = []
        self._devices = FlowtableDevices(
            cast("Ruleset", self.kernel),
            tuple(held) or (Family.IPV4,),
            lambda problems: self.reports.append(tuple(problems)),
            links=lambda: [link(name) for name in self.names],
        )

    def look(self, *, changed: bool = True) -> None:
        asyncio.run(self._devices.look(changed=changed))


def test_both_families_get_what_came_and_lose_what_went() -> None:
    scene = Scene({Family.IPV4: {"gone", "eth0"}, Family.IPV6: set()}, "eth0", "veth1")
    scene.look()

    assert scene.kernel.held == {Family.IPV4: {"eth0", "veth1"}, Family.IPV6: {"eth0", "veth1"}}
    assert scene.kernel.commits == 2
    assert scene.reports == [()]


def test_nothing_is_written_where_nothing_differs_and_nothing_read_where_nothing_changed() -> None:
    scene = Scene({Family.IPV4: {"eth0"}}, "eth0")
    scene.look()
    assert (scene.kernel.commits, scene.kernel.dumps) == (0, 1)

    scene.look(changed=False)
    assert scene.kernel.dumps == 1
    scene.kernel.commits += 1  # another commit, which may have rebuilt the table
    scene.look(changed=False)
    assert scene.kernel.dumps == 2


def test_a_table_without_a_flowtable_is_left_alone() -> None:
    scene = Scene({}, "eth0")
    scene.look()

    assert scene.kernel.commits == 0


def test_a_device_that_the_kernel_refuses_is_a_problem_and_keeps_none_of_the_others_out() -> None:
    scene = Scene({Family.IPV4: {"gone"}}, "eth0", "odd0", "veth1")
    scene.kernel.refused = {"odd0"}
    scene.look()

    assert scene.kernel.held == {Family.IPV4: {"eth0", "veth1"}}
    ((problem,),) = scene.reports
    assert problem.reason == REFUSED
    assert "odd0 (Operation not supported)" in problem.detail

    scene.kernel.refused.clear()
    scene.look(changed=False)
    assert scene.kernel.held == {Family.IPV4: {"eth0", "odd0", "veth1"}}
    assert scene.reports[-1] == ()


def test_more_devices_than_fit_one_message() -> None:
    many = {f"veth{number}" for number in range(450)}
    scene = Scene({Family.IPV4: set()}, *many)
    scene.look()

    assert scene.kernel.held[Family.IPV4] == many
    assert scene.kernel.commits == 1

"""How much of the connection table the cleaner goes through: as little as it needs."""

from pathlib import Path

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane import conntrack_list
from nodeagent.proxy.dataplane.conntrack_cleaner import _Pass
from tests.contract.dataplane.tracked_flows import (
    GONE,
    GONE6,
    POD,
    POD6,
    VIP,
    VIP6,
    Namespace,
    clean,
    given_flows,
    track,
    tracked,
    udp_port,
)

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize(
    ("addresses", "seen"),
    [
        pytest.param((VIP,), 1, id="one place: what was asked for"),
        pytest.param((VIP, "10.96.0.2"), 99, id="two places and a small table: all in one walk"),
    ],
)
def test_the_kernel_returns_only_the_selected_flows(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...], seen: int
) -> None:
    monkeypatch.setattr(conntrack_list, "FEW_FLOWS", 0)
    given_flows(namespace, [track(("10.0.0.1", n), (f"10.96.0.{n}", 53), POD) for n in range(1, 100)])

    [report] = clean(namespace, udp_port(*addresses))

    assert report.seen == seen


def test_an_empty_table_is_not_walked_through(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk takes milliseconds even so."""
    walks: list[object] = []
    monkeypatch.setattr(_Pass, "_walk_to_the_end", lambda _, request, writer: walks.append(request))

    [report] = clean(namespace, udp_port(VIP))
    assert (report.complete, report.seen, walks) == (True, 0, [])
    given_flows(namespace, [track(("10.0.0.1", 1), (VIP, 53), GONE)])
    clean(namespace, udp_port(VIP))
    assert len(walks) == 1


@pytest.mark.parametrize(
    ("vip", "pod", "gone", "client", "family"),
    [(VIP, POD, GONE, "10.0.0.1", Family.IPV4), (VIP6, POD6, GONE6, "fd00::1", Family.IPV6)],
    ids=["IPv4", "IPv6"],
)
def test_a_table_with_few_flows_is_walked_through_only_for_a_stale_one(
    namespace: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    vip: str,
    pod: tuple[str, int],
    gone: tuple[str, int],
    client: str,
    family: Family,
) -> None:
    """The list of flows says whether there is one, in a tenth of the time."""
    walks: list[object] = []
    monkeypatch.setattr(_Pass, "_walk_to_the_end", lambda _, request, writer: walks.append(request))
    port = udp_port(vip, serving=(pod,), family=family)
    given_flows(namespace, [track((client, number), (vip, 53), pod) for number in range(1, 10)])

    [report] = clean(namespace, port)
    assert (report.complete, report.seen, walks) == (True, 9, [])

    given_flows(namespace, [track((client, 10), (vip, 53), gone)])
    clean(namespace, port)
    assert len(walks) == 1


@pytest.mark.parametrize(
    "flows", [conntrack_list.FEW_FLOWS, conntrack_list.FEW_FLOWS + 1], ids=["by bytes", "by number"]
)
def test_a_list_that_does_not_come_in_one_piece_is_not_trusted(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, flows: int
) -> None:
    """A flow that ends between two reads would hide another one."""
    walks: list[object] = []
    monkeypatch.setattr(_Pass, "_walk_to_the_end", lambda _, request, writer: walks.append(request))
    given_flows(namespace, [track(("10.0.0.1", number), (VIP, 53), POD) for number in range(1, flows + 1)])

    clean(namespace, udp_port(VIP))

    assert len(walks) == 1


def test_without_a_list_the_kernel_is_asked_for_flows(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without CONFIG_NF_CONNTRACK_PROCFS."""
    monkeypatch.setattr(conntrack_list, "_LIST", Path("/proc/no-such-list"))
    flows = [track(("10.0.0.1", 1), (VIP, 53), POD), track(("10.0.0.1", 2), (VIP, 53), GONE)]
    given_flows(namespace, flows)

    clean(namespace, udp_port(VIP))

    assert {port for _, _, port in tracked(namespace)} == {1}

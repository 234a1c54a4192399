"""Kernel settings: what is needed, what is written, and what the lines for people say. The tree is a directory."""

from pathlib import Path

import pytest

from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.sysctl import (
    ConntrackOptions,
    Sysctl,
    SysctlOutcome,
    apply_sysctls,
    conntrack_max,
    required_sysctls,
)

LEARNED_DEFAULT_ROUTE = (
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "fe800000000000000000000000000001 00000400 00000002 00000000 00450003 {interface:>8}\n"
)
STATIC_DEFAULT_ROUTE = LEARNED_DEFAULT_ROUTE.replace("00450003", "00000003")
FORWARDING = "proc/sys/net/ipv6/conf/all/forwarding"


def tree(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def node_with_interface(root: Path, name: str, *, accept_ra: int, forwarding: int = 0, routes: str = "") -> Path:
    return tree(
        root,
        {
            FORWARDING: "0\n",
            f"proc/sys/net/ipv6/conf/{name}/accept_ra": f"{accept_ra}\n",
            f"proc/sys/net/ipv6/conf/{name}/forwarding": f"{forwarding}\n",
            "proc/thread-self/net/ipv6_route": routes.format(interface=name),
        },
    )


def accept_ra(root: Path, name: str) -> int:
    return int((root / f"proc/sys/net/ipv6/conf/{name}/accept_ra").read_text())


def forwards_ipv6(root: Path) -> bool:
    return int((root / FORWARDING).read_text()) == 1


@pytest.mark.parametrize(
    ("families", "names"),
    [
        pytest.param([Family.IPV4], ["net.ipv4.ip_forward"], id="IPv4"),
        pytest.param([Family.IPV6], ["net.ipv6.conf.all.forwarding"], id="IPv6"),
        pytest.param(list(Family), ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"], id="dual-stack"),
    ],
)
def test_forwarding_is_needed_per_family(families: list[Family], names: list[str]) -> None:
    assert [sysctl.name for sysctl in required_sysctls(families)] == names


@pytest.mark.parametrize(
    ("settings", "cores", "entries"),
    [
        pytest.param(ConntrackOptions(), 1, 131072, id="the minimum on a small node"),
        pytest.param(ConntrackOptions(), 8, 262144, id="per core"),
        pytest.param(ConntrackOptions(), 128, 1048576, id="never more than a million"),
        pytest.param(ConntrackOptions(min=4_000_000), 1, 1048576, id="not even as a minimum"),
        pytest.param(ConntrackOptions(max_per_core=0), 8, None, id="zero per core leaves the table alone"),
        pytest.param(ConntrackOptions(max_per_core=1000, min=0), 4, 4000, id="no minimum"),
    ],
)
def test_table_size(settings: ConntrackOptions, cores: int, entries: int | None) -> None:
    assert conntrack_max(settings, cores) == entries


def test_conntrack_options_become_sysctls_and_zeros_are_left_out() -> None:
    settings = ConntrackOptions(tcp_be_liberal=True, udp_seconds=30, tcp_close_wait_seconds=0)

    required = required_sysctls([], conntrack=settings, cores=8)

    assert {sysctl.name: sysctl.value for sysctl in required} == {
        "net.netfilter.nf_conntrack_max": 262144,
        "/sys/module/nf_conntrack/parameters/hashsize": 65536,
        "net.netfilter.nf_conntrack_tcp_timeout_established": 86400,
        "net.netfilter.nf_conntrack_udp_timeout": 30,
        "net.netfilter.nf_conntrack_tcp_be_liberal": 1,
    }


@pytest.mark.parametrize(
    ("found", "sysctl", "outcome", "after"),
    [
        pytest.param("0\n", Sysctl("proc/sys/x", 1, "why"), SysctlOutcome.WRITTEN, "1\n", id="different"),
        pytest.param("1", Sysctl("proc/sys/x", 1, "why"), SysctlOutcome.UNCHANGED, "1", id="equal is not written"),
        pytest.param("9\n", Sysctl("proc/sys/x", 1, "why"), SysctlOutcome.WRITTEN, "1\n", id="larger is lowered"),
        pytest.param(
            "9\n",
            Sysctl("proc/sys/x", 1, "why", raise_only=True),
            SysctlOutcome.UNCHANGED,
            "9\n",
            id="unless it may be",
        ),
        pytest.param("many\n", Sysctl("proc/sys/x", 1, "why"), SysctlOutcome.FAILED, "many\n", id="not a number"),
    ],
)
def test_only_what_differs_is_written(
    tmp_path: Path, found: str, sysctl: Sysctl, outcome: SysctlOutcome, after: str
) -> None:
    [result] = apply_sysctls([sysctl], root=tree(tmp_path, {"proc/sys/x": found}))

    assert result.outcome is outcome
    assert (tmp_path / "proc/sys/x").read_text() == after


@pytest.mark.parametrize(
    ("sysctl", "advice"),
    [
        pytest.param(Sysctl(FORWARDING, 1, "why"), "without IPv6", id="no IPv6"),
        pytest.param(Sysctl("proc/sys/net/netfilter/nf_conntrack_max", 1, "why"), "load the module", id="no conntrack"),
    ],
)
def test_a_missing_setting_says_what_to_do_and_the_others_are_set(tmp_path: Path, sysctl: Sysctl, advice: str) -> None:
    tree(tmp_path, {"proc/sys/net/ipv4/ip_forward": "0\n"})

    results = apply_sysctls([sysctl, *required_sysctls([Family.IPV4])], root=tmp_path)

    assert [result.outcome for result in results] == [SysctlOutcome.FAILED, SysctlOutcome.WRITTEN]
    assert results[0].problem is not None
    assert advice in results[0].problem.detail


@pytest.mark.parametrize(
    ("accept", "forwarding", "routes", "after"),
    [
        pytest.param(1, 0, LEARNED_DEFAULT_ROUTE, 2, id="a learned default route is kept"),
        pytest.param(2, 0, LEARNED_DEFAULT_ROUTE, 2, id="already safe"),
        pytest.param(0, 0, LEARNED_DEFAULT_ROUTE, 0, id="advertisements are not wanted"),
        pytest.param(1, 1, LEARNED_DEFAULT_ROUTE, 1, id="forwarding already, so they are ignored already"),
        pytest.param(1, 0, STATIC_DEFAULT_ROUTE, 1, id="static routes need nothing, so a pod's veth stays closed"),
        pytest.param(1, 0, "", 1, id="no routes"),
    ],
)
def test_router_advertisements_stay_accepted_where_the_node_depends_on_them(
    tmp_path: Path, accept: int, forwarding: int, routes: str, after: int
) -> None:
    node_with_interface(tmp_path, "eth0", accept_ra=accept, forwarding=forwarding, routes=routes)

    apply_sysctls(required_sysctls([Family.IPV6]), root=tmp_path)

    assert accept_ra(tmp_path, "eth0") == after
    assert forwards_ipv6(tmp_path)


def test_a_hardware_interface_keeps_accepting_advertisements_before_the_first_came(tmp_path: Path) -> None:
    node_with_interface(tmp_path, "eth0", accept_ra=1)
    tree(tmp_path, {"sys/class/net/eth0/device": ""})

    apply_sysctls(required_sysctls([Family.IPV6]), root=tmp_path)

    assert accept_ra(tmp_path, "eth0") == 2


def test_nothing_is_touched_when_the_node_forwards_already(tmp_path: Path) -> None:
    node_with_interface(tmp_path, "eth0", accept_ra=1, routes=LEARNED_DEFAULT_ROUTE)
    tree(tmp_path, {FORWARDING: "1\n"})

    [result] = apply_sysctls(required_sysctls([Family.IPV6]), root=tmp_path)

    assert result.outcome is SysctlOutcome.UNCHANGED
    assert accept_ra(tmp_path, "eth0") == 1

"""The agent on Debian 12's and Debian 13's own kernels, with packets from pods, from the node and from outside; with and without
offloaded connections."""

import re

import pytest

from .conftest import Report

PODS = {"web-0", "web-1", "web-2"}


@pytest.fixture
def owned(report: Report) -> bool:
    """Whether this kernel can own tables, which Linux can since 6.9."""
    return report.release == "6.12."


def without_owner(listing: str) -> list[str]:
    """Lines of a listing but for what nft says of a table's owner, which is a process and cannot be loaded."""
    lines = (line.partition(" # progname")[0] for line in listing.splitlines())
    return [line for line in lines if line and not line.startswith("\tflags owner")]


def test_the_machine_runs_the_stock_kernel(report: Report) -> None:
    assert report.facts["kernel"].startswith(report.release)


def test_the_service_interface_is_a_dummy_with_the_ipv4_cluster_ips(report: Report) -> None:
    """Those of IPv6 are local by routes."""
    link = report.facts["link"]

    assert link["linkinfo"]["info_kind"] == "dummy"
    carried = {address["local"] for address in link["addr_info"]}
    assert carried >= {"10.96.0.10", "10.96.0.12"}
    assert not [address for address in carried if ":" in address]


def test_connections_of_both_families_reach_all_pods_from_everywhere(report: Report) -> None:
    answers = report.facts["answers"]

    assert len(answers) == 12
    for name, answer in answers.items():
        assert not answer["failures"], name
        assert set(answer["names"]) == PODS, name


@pytest.mark.parametrize("address", ["10.96.0.10", "fd00:10:96::a"])
def test_pods_are_seen_with_their_own_address(report: Report, address: str) -> None:
    pods = {"10.96.0.10": "10.244.1.200", "fd00:10:96::a": "fd00:244:1::c8"}

    assert report.facts["answers"][f"caller {address} 80"]["peers"] == [pods[address]]


def test_a_service_without_endpoints_refuses(report: Report) -> None:
    assert report.facts["refused"] == [{"refused": 1}] * 2


def test_a_cluster_ip_by_the_route_of_its_range_is_not_local_and_answers_ping(report: Report) -> None:
    assert "dev nodeagent0 table local" in report.facts["range"]
    assert not report.facts["range"].startswith("local")
    assert report.facts["pings"] == [{}] * 6


def test_a_client_with_affinity_stays_with_its_pod(report: Report) -> None:
    assert [len(names) for names in report.facts["sticky"]] == [1, 1]


def test_the_kind_of_table_is_what_the_kernel_can(report: Report, *, owned: bool) -> None:
    assert f"table={'owned' if owned else 'plain'}" in report.log
    assert ("flags owner" in report.facts["ruleset"]) is owned


def test_the_flowtable_is_what_the_option_says(report: Report) -> None:
    assert ("flow add @established" in report.facts["ruleset"]) is report.flowtable
    assert "NoFlowtables" not in report.log


def test_an_edit_by_hand_is_refused_or_repaired(report: Report, *, owned: bool) -> None:
    """The story goes on only once the address answers again."""
    assert ("Operation not permitted" in report.facts["refusal of an edit"]) is owned


def test_every_problem_in_the_log_is_one_of_a_namespace_that_may_not_set_it(report: Report) -> None:
    problems = re.findall(r"problem: sysctl (\S+):", report.log)

    assert set(problems) <= {"net.netfilter.nf_conntrack_max", "/sys/module/nf_conntrack/parameters/hashsize"}


def test_the_listing_names_services_and_loads_again_as_it_was(report: Report) -> None:
    assert 'comment "default/web:http"' in report.facts["ruleset"]
    assert without_owner(report.facts["reloaded"]) == without_owner(report.facts["ruleset"])


def test_show_counts_the_connections(report: Report) -> None:
    rows = {(row["service"], row["family"]): row for row in report.facts["show"]}

    for family in ("IPv4", "IPv6"):
        assert rows["default/web:http", family]["backends"] == 3
        assert rows["default/web:http", family]["connections"] == 180
        assert rows["default/empty:http", family]["backends"] == 0


def test_a_restart_writes_nothing(report: Report, *, owned: bool) -> None:
    before, after = report.facts["restart"]["generations"]

    assert report.facts["restart"]["elements"] == 0
    assert owned or before == after


def test_sigterm_leaves_everything_in_force(report: Report) -> None:
    assert report.facts["stop"]["status"] == 0
    assert [set(names) for names in report.facts["stop"]["names"]] == [PODS, PODS]


def test_cleanup_leaves_nothing(report: Report) -> None:
    assert report.facts["left"]["ruleset"] == ""
    assert "nodeagent0" not in report.facts["left"]["links"]

"""Two hosts with one address, by who answers for it."""

import pytest

from nodeagent.diagnosis.checks.duplicate_addresses import AnsweringHosts, duplicate_findings
from nodeagent.diagnosis.checks.finding import Result

ONE, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
GATEWAY = AnsweringHosts("eth0", "192.0.2.1", False, (ONE,))
OWN = AnsweringHosts("eth0", "192.0.2.9", True, ())


def found(*answering: AnsweringHosts) -> list[tuple[Result, str]]:
    return [(one.result, one.detail) for one in duplicate_findings(answering)]


@pytest.mark.parametrize(
    "silent", [GATEWAY, AnsweringHosts("eth0", "192.0.2.1", False, ())], ids=["it answers", "it is silent"]
)
def test_one_host_or_none_for_each_address_is_right(silent: AnsweringHosts) -> None:
    assert found(silent, OWN) == [
        (Result.OK, "one host answers for each of 2 addresses of this node, its gateways and pods")
    ]


def test_there_is_no_finding_where_hosts_cannot_be_asked() -> None:
    assert found() == []


def test_two_hosts_with_the_address_of_a_gateway_are_both_named() -> None:
    ((result, detail),) = found(OWN, AnsweringHosts("eth0", "192.0.2.1", False, (ONE, OTHER)))
    assert result is Result.FAILED
    assert detail.startswith(
        f"several hosts have 192.0.2.1 on eth0 ({ONE} and {OTHER}): packets to it reach one or the other"
    )


def test_another_host_with_an_address_of_this_node_is_named() -> None:
    ((result, detail),) = found(GATEWAY, AnsweringHosts("eth0", "192.0.2.9", True, (OTHER,)))
    assert result is Result.FAILED
    assert detail == f"another host ({OTHER}) has 192.0.2.9 of this node on eth0: answers to this node are lost there"

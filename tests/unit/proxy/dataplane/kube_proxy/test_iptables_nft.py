"""Chains and rules as nf_tables dumps them, and the messages that remove them."""

import pytest

from nodeagent.proxy.dataplane.kube_proxy.iptables_nft import parse_chain, parse_rule, removal_messages
from nodeagent.proxy.dataplane.kube_proxy.rules import Removal, TableRule
from nodeagent.wire.netlink.framing import attribute, nested, string
from nodeagent.wire.netlink.netfilter import u32, u64
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_DELCHAIN, NFT_MSG_DELRULE

JUMP, GOTO, ACCEPT = -3, -4, 1


def expression(name: str, *data: bytes) -> bytes:
    return nested(1, string(1, name), nested(2, *data))


def verdict(code: int, chain: str = "") -> bytes:
    return expression(
        "immediate", u32(1, 0), nested(2, nested(2, u32(1, code), *([string(2, chain)] if chain else [])))
    )


def match(name: str, info: bytes) -> bytes:
    return expression("match", string(1, name), u32(2, 0), attribute(3, info))


def rule(*expressions: bytes, user_data: bytes = b"") -> memoryview:
    body = string(1, "nat") + string(2, "PREROUTING") + u64(3, 7) + nested(4, *expressions)
    return memoryview(body + (attribute(7, user_data) if user_data else b""))


COMMENT = match("comment", b"kubernetes service portals".ljust(256, b"\0"))
FORWARD = string(1, "filter") + string(3, "FORWARD") + nested(4, u32(1, 2), u32(2, 0)) + string(7, "filter")
COUNTER = expression("counter", u64(1, 0), u64(2, 0))


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(
            rule(COMMENT, COUNTER, verdict(JUMP, "KUBE-SERVICES")),
            TableRule("PREROUTING", "KUBE-SERVICES", "kubernetes service portals", handle=7),
            id="a jump with a comment",
        ),
        pytest.param(rule(verdict(GOTO, "A")), TableRule("PREROUTING", "A", handle=7), id="a goto"),
        pytest.param(rule(COUNTER, verdict(ACCEPT)), TableRule("PREROUTING", handle=7), id="a verdict"),
        pytest.param(
            rule(expression("immediate", u32(1, 8), nested(2, attribute(1, b"\0\0\0\1")))),
            TableRule("PREROUTING", handle=7),
            id="a value",
        ),
        pytest.param(
            rule(match("tcp", b"\1" * 256), verdict(JUMP, "A")), TableRule("PREROUTING", "A", handle=7), id="a match"
        ),
        pytest.param(
            rule(verdict(JUMP, "A"), user_data=b"\1\2xx\0\x06hello\0"),
            TableRule("PREROUTING", "A", "hello", handle=7),
            id="a comment as nft keeps it",
        ),
        pytest.param(memoryview(string(2, "EMPTY") + u64(3, 1)), TableRule("EMPTY", handle=1), id="no expression"),
    ],
)
def test_a_rule_is_read(read: memoryview, expected: TableRule) -> None:
    assert parse_rule(read) == expected


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        pytest.param(string(1, "nat") + string(3, "KUBE-SVC-A"), ("KUBE-SVC-A", None), id="made by somebody"),
        pytest.param(FORWARD + u32(5, 0), ("FORWARD", "DROP"), id="drops"),
        pytest.param(FORWARD + u32(5, 1), ("FORWARD", "ACCEPT"), id="accepts"),
    ],
)
def test_a_chain_is_read(read: bytes, expected: tuple[str, str | None]) -> None:
    assert parse_chain(memoryview(read)) == expected


def test_chains_are_emptied_before_rules_and_chains_go() -> None:
    removal = Removal("nat", {"KUBE-SVC-A": 1}, (TableRule("OUTPUT", "KUBE-SVC-A", handle=9),))

    emptied, unlinked, deleted = removal_messages(removal)

    assert (emptied.kind, emptied.body) == (NFT_MSG_DELRULE, string(1, "nat") + string(2, "KUBE-SVC-A"))
    assert (unlinked.kind, unlinked.body) == (NFT_MSG_DELRULE, string(1, "nat") + string(2, "OUTPUT") + u64(3, 9))
    assert (deleted.kind, deleted.body) == (NFT_MSG_DELCHAIN, string(1, "nat") + string(3, "KUBE-SVC-A"))

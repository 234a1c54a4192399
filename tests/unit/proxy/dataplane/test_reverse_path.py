"""What the agent says of the reverse path filter. The tree is a directory."""

from pathlib import Path

import pytest

from nodeagent.proxy.dataplane.reverse_path import RECENT_SECONDS, ReversePathFilter, read_drops, strict_interfaces

PATH = "ipv4/conf/{}/rp_filter"


class Node:
    """Interfaces lo, eth0 and eth1. Time stands until a test moves it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1000.0
        self.dropped(0)
        self.filter = ReversePathFilter(root, lambda: ("lo", "eth0", "eth1"), lambda: self.now)

    def dropped(self, count: int) -> None:
        self._write(
            "proc/thread-self/net/netstat", f"TcpExt: A IPReversePathFilter\nTcpExt: 5 {count}\nIpExt: B\nIpExt: 1\n"
        )

    def mode(self, name: str, value: int) -> None:
        self._write(f"proc/sys/net/{PATH.format(name)}", f"{value}\n")

    def reasons(self) -> list[str]:
        return [one.reason for one in self.filter.problems()]

    def _write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    ("modes", "strict"),
    [
        ({}, ()),
        ({"eth0": 1}, ("eth0",)),
        ({"all": 1}, ("eth0", "eth1")),
        ({"all": 1, "eth0": 2}, ("eth1",)),
        ({"all": 2, "eth0": 1}, ()),
        ({"lo": 1}, ()),
    ],
)
def test_the_greater_value_counts(modes: dict[str, int], strict: tuple[str, ...]) -> None:
    settings = {PATH.format(name): value for name, value in modes.items()}
    assert strict_interfaces(("lo", "eth0", "eth1"), settings.get) == strict


def test_drops_of_a_strict_filter_are_a_problem_for_a_while(node: Node) -> None:
    node.mode("eth1", 1)
    assert node.reasons() == []
    node.dropped(2)
    assert node.reasons() == ["ReversePathDrops"]
    node.now += RECENT_SECONDS - 1
    assert node.reasons() == ["ReversePathDrops"]
    node.now += 1
    assert node.reasons() == []


def test_drops_before_the_start_do_not_count(node: Node) -> None:
    node.mode("eth1", 1)
    node.dropped(7)
    assert (node.reasons(), node.filter.dropped) == ([], 7)


def test_the_cure_ends_it(node: Node) -> None:
    node.mode("eth1", 1)
    node.reasons()
    node.dropped(2)
    [problem] = node.filter.problems()
    assert "(eth1)" in problem.detail
    assert problem.detail.count("2") == 1, "the command alone has a number, so that the text stays the same"
    node.mode("all", 2)
    assert node.reasons() == []


def test_a_loose_filter_is_no_problem(node: Node) -> None:
    node.mode("eth1", 2)
    node.reasons()
    node.dropped(2)
    assert node.reasons() == []


def test_a_counter_that_cannot_be_read(tmp_path: Path) -> None:
    assert read_drops(tmp_path) is None
    assert ReversePathFilter(tmp_path).problems() == ()

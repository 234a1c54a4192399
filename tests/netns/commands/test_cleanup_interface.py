"""`nodeagent cleanup --interface NAME` deletes what is ours by proof, and nothing by its name alone."""

import pytest

from tests.netns.commands.conftest import Node

BRIDGE = """
ip link add cni0 type bridge
ip link add veth0 type veth peer name veth1
ip link set veth0 master cni0
ip address add 10.244.1.1/24 dev cni0
ip link set cni0 up
"""


def state(node: Node) -> str:
    return node.shell("ip -o link show dev cni0 | sed 's/state [A-Z]*//'; ip -o address show dev cni0; bridge link")


@pytest.mark.parametrize("programmed", [False, True], ids=["alone", "beside-ours"])
def test_a_foreign_bridge_is_refused_and_stays_as_it_is(node: Node, programmed: bool) -> None:
    if programmed:
        node.program_examples()
    node.shell(BRIDGE)
    before, tables = state(node), node.shell("nft list tables")

    done = node.nodeagent("cleanup", "--interface=cni0")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nodeagent: interface cni0 ")
    assert done.stderr.count("\n") == 1
    assert (state(node), node.shell("nft list tables")) == (before, tables), "refused as a whole"


def test_our_own_is_removed_and_repeating_it_is_fine(node: Node) -> None:
    node.program_examples()
    first, second = node.nodeagent("cleanup"), node.nodeagent("cleanup")
    assert first.stdout == "removed interface nodeagent0, table IPv4, table IPv6\n"
    assert (second.returncode, second.stdout) == (0, "nothing of ours was here\n")
    assert "nodeagent0" not in node.shell("ip link")

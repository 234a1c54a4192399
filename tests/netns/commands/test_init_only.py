"""`run --init-only` sets what takes more rights than the agent needs, and programs nothing."""

from tests.netns.commands.conftest import Node

FORWARDING = "net.ipv4.ip_forward"
AGENT_ALONE = ("run", "--once", "--manifests=docs/examples", "--node-name=node-a", "--cluster-cidr=10.244.0.0/16")


def test_the_sysctls_are_set_and_nothing_is_programmed(node: Node) -> None:
    node.shell(f"sysctl -qw {FORWARDING}=0")
    done = node.nodeagent("run", "--init-only")
    assert done.returncode == 0, done.stderr
    assert f"sysctl {FORWARDING}: 0 -> 1" in done.stderr
    assert node.shell(f"sysctl -n {FORWARDING}") == "1\n"
    assert node.shell("nft list tables") == ""


def test_the_agent_then_has_nothing_to_say_of_them(node: Node) -> None:
    manages_none = {"NODEAGENT_PROCESS_MANAGE_SYSCTLS": "false"}
    node.shell(f"sysctl -qw {FORWARDING}=0")
    before = node.nodeagent(*AGENT_ALONE, environment=manages_none).stderr
    assert f"problem: sysctl {FORWARDING}" in before
    node.nodeagent("run", "--init-only")
    assert "problem: sysctl" not in node.nodeagent(*AGENT_ALONE, environment=manages_none).stderr


def test_init_only_is_a_run_of_its_own(node: Node) -> None:
    done = node.nodeagent("run", "--once", "--init-only")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "Error: --once and --init-only are two different runs: give one of them"

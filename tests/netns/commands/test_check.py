"""`nodeagent check`: what the kernel takes, and whether nft reads the table as the agent does."""

import json
import socket
import sys
from pathlib import Path

import pytest

from tests.netns.commands.conftest import NODEAGENT, Node

BINDINGS = "/usr/lib/python3/dist-packages/nftables"


def findings(node: Node, exit_code: int = 0) -> dict[str, tuple[str, str]]:
    """Check → (result, what was found)."""
    done = node.nodeagent("check", "-o", "json")
    assert (done.returncode, done.stderr) == (exit_code, "")
    document = json.loads(done.stdout)
    assert list(document) == ["verdict", "checks"], "the verdict comes first"
    unseen = "rules outside of IP" in {check["check"] for check in document["checks"]}
    good = "healthy; as far as is known: table " if unseen else "healthy"
    assert document["verdict"].startswith("not healthy: " if exit_code else good)
    assert exit_code or unseen or document["verdict"] == good
    return {check["check"]: (check["result"], check["detail"]) for check in document["checks"]}


def test_a_kernel_that_has_nothing_of_ours_takes_all_and_keeps_nothing(node: Node) -> None:
    found = findings(node)
    for family in ("IPv4", "IPv6"):
        assert found[f"{family} rules"] == ("ok", "the kernel takes every set, chain and rule")
        assert found[f"{family} table"] == ("note", "nothing is programmed")
    assert node.shell("nft list ruleset") == ""


@pytest.mark.parametrize("ownership", ["owned", "plain"])
@pytest.mark.parametrize("counters", [True, False], ids=["counters", "no counters"])
def test_both_readers_say_the_same_of_what_is_programmed(
    node: Node, tmp_path: Path, counters: bool, ownership: str
) -> None:
    config = tmp_path / "config.yaml"
    head = "apiVersion: nodeagent.io/v1alpha1\nkind: NodeAgentConfiguration\n"
    options = f"dataplane: {{counters: {str(counters).lower()}, tableOwnership: {ownership}}}\n"
    config.write_text(head + options)
    node.program_examples("--config", str(config))
    before = node.shell("nft list ruleset")
    found = findings(node)
    for family in ("IPv4", "IPv6"):
        result, printed = found[f"{family} table"]
        assert result == "ok"
        assert printed.endswith("nft reads the same")
        assert not printed.startswith("30 sets, 0 elements")
    assert node.shell("nft list ruleset") == before


def test_a_table_that_is_not_as_we_make_it_is_not_healthy(node: Node) -> None:
    node.program_examples()
    node.shell("nft add set ip nodeagent intruder '{ type ipv4_addr; }'")
    found = findings(node, exit_code=1)
    assert found["IPv4 table"][0] == "failed"
    assert found["IPv6 table"][0] == "ok"


def test_without_the_bindings_one_line_says_what_to_install(node: Node) -> None:
    node.program_examples()
    hidden = f'mount -t tmpfs none {BINDINGS} && exec "$@"'
    done = node.run("unshare", "--mount", "sh", "-c", hidden, "-", *NODEAGENT, "check", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    found = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["second reader"]["result"] == "note"
    assert "install python3-nftables" in found["second reader"]["detail"]
    assert found["IPv4 table"]["result"] == "ok"


def test_without_the_bindings_nft_lists_the_rules_of_others(node: Node) -> None:
    """The same as they do; the control: without nft, too, a note says that the rules were not read."""
    node.program_examples()
    node.shell("nft 'table ip guard { chain f { type filter hook output priority 0; tcp dport 9 counter drop; }; }'")
    looks = "[r.listed('list table ip guard'), r.text('list table ip guard')]"
    reader = "from pathlib import Path; from nodeagent.cli.second_reader import SecondReader"
    by_nft = f"{reader}; r = SecondReader(Path('/nowhere'), program=True); a = {looks}"
    same = (
        f"{by_nft}; r = SecondReader(); assert a == {looks}; print(type(r._nftables).__name__, 'tcp dport 9' in a[1])"
    )
    hidden = f'mount -t tmpfs none {BINDINGS} && mount -t tmpfs none /usr/sbin && exec "$@"'
    try:
        assert node.run(sys.executable, "-c", same).stdout == "Nftables True\n"
        done = node.run("unshare", "--mount", "sh", "-c", hidden, "-", *NODEAGENT, "check")
        assert "table ip guard was not read: there is no nftables module" in done.stdout
    finally:
        node.shell("nft delete table ip guard")


def test_check_needs_a_permission(node: Node) -> None:
    done = node.run("setpriv", "--bounding-set=-net_admin", *NODEAGENT, "check")
    assert done.returncode == 3
    assert done.stderr.startswith("nodeagent: nf_tables: not permitted")
    assert len(done.stderr.splitlines()) == 1


def test_a_table_that_was_flushed_is_missed(node: Node) -> None:
    node.program_examples("--table-ownership", "plain")
    assert findings(node)["IPv4 table"][0] == "ok"
    node.shell("nft flush ruleset")
    printed = node.nodeagent("check").stdout.splitlines()
    assert printed[0].startswith("not healthy: IPv4 table, because it is gone, and nodeagent0 still has the ClusterIPs")


def test_a_family_that_is_not_served_is_not_missed(node: Node) -> None:
    """The control: where it was served, its table is missed."""
    node.shell("sysctl -qw net.ipv6.conf.all.forwarding=0")
    node.program_examples("--table-ownership", "plain", "--families", "IPv4")
    found = findings(node)
    assert found["IPv6 table"] == ("note", "nothing is programmed")
    assert found["IPv6 forwarding"][0] == "note"
    node.program_examples("--table-ownership", "plain")
    assert findings(node)["IPv6 table"][0] == "ok"
    node.shell("nft delete table ip6 nodeagent")
    assert findings(node, exit_code=1)["IPv6 table"][0] == "failed"


def test_rules_that_others_changed_are_noticed(node: Node) -> None:
    node.program_examples("--table-ownership", "plain")
    node.shell("nft insert rule ip nodeagent prerouting ip saddr 10.9.9.9 drop")
    result, printed = findings(node, exit_code=1)["IPv4 table"]
    assert (result, printed) == (
        "failed",
        "its chains or rules are not those that the agent writes: somebody changed them",
    )


@pytest.mark.parametrize(
    "detection", [["--masquerade-all"], ["--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0"]]
)
def test_every_configuration_is_known_as_ours(node: Node, detection: list[str]) -> None:
    node.program_examples(*detection)
    assert findings(node)["IPv4 table"][0] == "ok"


def test_other_programs_are_named_with_what_follows(node: Node) -> None:
    node.program_examples()
    node.shell("iptables -N ufw-before-input; iptables -P FORWARD DROP; ip link add docker0 type bridge")
    found = findings(node)
    assert found["ufw"][0] == found["Docker"][0] == found["forwarding"][0] == "note"
    assert "allow the pods' range" in found["ufw"][1]
    assert found["hook order"][0] == "ok"


def test_who_translates_before_us_is_named_in_the_first_line(node: Node) -> None:
    node.program_examples()
    node.shell("nft 'table ip early { chain p { type nat hook prerouting priority -110; }; }'")
    printed = node.nodeagent("check").stdout.splitlines()
    assert printed[0].startswith(
        "not healthy: hook order, because ip early, chain p translates in prerouting at -110, before ours"
    )


TAKEN_AWAY = [
    pytest.param(
        "for a in $(ip -4 -o addr show dev nodeagent0 | awk '{print $4}'); do ip addr del $a dev nodeagent0; done; "
        "ip route flush table local proto 110",
        "ClusterIPs are not addresses of this node", "somebody took them from nodeagent0", id="addresses",
    ),
    pytest.param(
        "ip link del nodeagent0", "and it has no route to them", "there is no nodeagent0", id="interface",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("script", "what", "why"), TAKEN_AWAY)
def test_cluster_ips_that_somebody_took_away_are_missed(node: Node, script: str, what: str, why: str) -> None:
    node.program_examples()
    assert findings(node)["service interface"][0] == "ok"
    node.shell(script)
    printed = node.nodeagent("check").stdout.splitlines()[0]
    assert printed.startswith("not healthy: service interface, because ")
    assert what in printed
    assert why in printed
    node.program_examples()
    assert findings(node)["service interface"][0] == "ok"


def test_clients_with_affinity_are_counted(node: Node) -> None:
    """By kernels that count elements (NFTA_SET_COUNT); of others nothing is said."""
    node.program_examples()
    said = {printed for check, printed in findings(node).items() if check.endswith(" affinity")}
    assert said <= {("ok", "0 of 131072 clients are remembered")}


def test_an_agent_that_died_is_missed(node: Node, tmp_path: Path) -> None:
    """Without a socket nobody may be meant to run; a socket that nobody answers is left by one that was."""
    place = tmp_path / "agent.sock"
    node.program_examples()
    assert findings(node)["agent"][0] == "note"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
    printed = node.nodeagent("check", "--socket", str(place))
    assert printed.stdout.startswith(
        f"not healthy: agent, because no agent runs, one that died left {place}: what is programmed stays"
    )
    assert printed.returncode == 1
    place.unlink()
    assert node.nodeagent("check", "--socket", str(place)).stdout.startswith("healthy\n")


def test_rules_outside_of_ip_are_named(node: Node) -> None:
    node.program_examples()
    assert "rules outside of IP" not in findings(node)
    node.shell("nft 'table netdev guard { chain i { type filter hook ingress device lo priority 0; }; }'")
    result, printed = findings(node)["rules outside of IP"]
    assert (result, printed.startswith("table netdev guard: ")) == ("note", True)

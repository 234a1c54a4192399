"""Service ranges that hold what has an address already: refused before anything is programmed, reported when found later."""

from pathlib import Path

import pytest

from tests.netns.commands.conftest import NODEAGENT, Node

ADDRESSES = """
ip link add eth0 type bridge
ip link set eth0 up
ip address add 192.168.0.5/24 dev eth0
ip address add fd00:1::5/64 dev eth0 nodad
ip route add default via 192.168.0.1
"""
OWN = "192.168.0.5/32 (an address of this node, eth0)"
GATEWAY = "192.168.0.1/32 (a gateway of this node)"
CUT = "which it would cut off"
RUN_ONCE = ("run", "--once", "--node-name=node-a", "--manifests")
RANGE = """\
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {{name: kubernetes}}
spec: {{cidrs: [{cidr}, 10.96.0.0/16]}}
"""


@pytest.mark.parametrize(
    ("option", "what"),
    [
        pytest.param("192.168.0.4/31", OWN, id="address"),
        pytest.param("192.168.0.0/30", GATEWAY, id="gateway"),
        pytest.param("192.168.0.0/16", f"{GATEWAY}, {OWN}", id="both"),
        pytest.param("fd00:1::/112", "fd00:1::5/128 (an address of this node, eth0)", id="ipv6"),
    ],
)
def test_a_configured_range_is_refused_by_check_and_by_run(node: Node, tmp_path: Path, option: str, what: str) -> None:
    node.shell(ADDRESSES)
    line = f"flag --service-cidr: traffic.serviceCIDRs: {option} overlaps with {what}, {CUT}\n"
    good = "--service-cidr=10.96.0.0/16,fd00:96::/112"
    for command in (("config", "check", f"--manifests={tmp_path}"), (*RUN_ONCE, str(tmp_path))):
        done = node.nodeagent(*command, f"--service-cidr={option}")
        assert (done.returncode, done.stderr) == (2, line)
        assert node.shell("nft list tables") == ""
    assert node.nodeagent("config", "check", f"--manifests={tmp_path}", good).returncode == 0
    assert node.nodeagent("config", "show", f"--service-cidr={option}").returncode == 0


def test_addresses_of_our_own_interface_do_not_stand_in_the_way(node: Node) -> None:
    node.program_examples("--service-cidr=10.96.0.0/16")
    assert "10.96.0.10" in node.shell("ip address show dev nodeagent0")
    node.program_examples("--service-cidr=10.96.0.0/16")


@pytest.mark.parametrize(
    ("cidr", "what", "target"),
    [
        pytest.param("0.0.0.0/1", "127.0.0.0/8 (loopback)", "127.0.0.1", id="loopback"),
        pytest.param("192.168.0.0/30", GATEWAY, "192.168.0.1", id="gateway"),
        pytest.param("192.168.0.0/24", OWN, "192.168.0.5", id="own"),
        pytest.param("10.244.0.0/16", "10.244.0.0/16 (pods: clusterCIDRs)", "10.244.1.1", id="pods"),
    ],
)
def test_a_service_cidr_object_is_a_problem_and_cuts_nothing_off(
    node: Node, tmp_path: Path, cidr: str, what: str, target: str
) -> None:
    node.shell(ADDRESSES)
    (tmp_path / "range.yaml").write_text(RANGE.format(cidr=cidr))
    done = node.nodeagent(*RUN_ONCE, str(tmp_path), "--cluster-cidr=10.244.0.0/16", "--allow-problems")
    assert done.returncode == 0, done.stderr
    assert f"problem: ServiceCIDR kubernetes: ServiceCIDROverlap: {cidr} overlaps with " in done.stderr
    assert what in done.stderr
    ranges = node.shell("nft list set ip nodeagent service-cidrs")
    assert "10.96.0.0/16" in ranges, "the control: the other range of the object is used"
    assert cidr not in ranges
    assert node.run("nft", "get", "element", "ip", "nodeagent", "service-cidrs", f"{{ {target} }}").returncode != 0


def test_a_route_that_appears_later_is_noticed(node: Node, tmp_path: Path) -> None:
    """An agent that runs: the range is used, until a gateway is inside it."""
    node.shell(ADDRESSES)
    (tmp_path / "range.yaml").write_text(RANGE.format(cidr="172.20.0.0/16"))
    agent = " ".join((f"'{NODEAGENT[0]}' -m nodeagent", "run", "--node-name=node-a", f"--manifests={tmp_path}"))
    ports = "--healthz-bind-address= --metrics-bind-address="
    node.shell(
        f"""
        {agent} {ports} 2> {tmp_path}/log & agent=$!
        trap 'kill $agent; wait $agent' EXIT
        used() {{ nft list set ip nodeagent service-cidrs 2> /dev/null | grep -q 172.20.0.0/16; }}
        within() {{ for try in $(seq 300); do if "$@"; then return 0; fi; sleep 0.1; done; return 1; }}
        gone() {{ ! used; }}
        within used
        ip address add 172.20.0.2/24 dev eth0
        within gone
        ip address del 172.20.0.2/24 dev eth0
        within used
        """
    )
    log = (tmp_path / "log").read_text()
    assert "problem: ServiceCIDR kubernetes: ServiceCIDROverlap: 172.20.0.0/16 overlaps with 172.20.0.2/32" in log
    assert "solved: ServiceCIDR kubernetes: ServiceCIDROverlap" in log

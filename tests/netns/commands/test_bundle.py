"""`nodeagent bundle` takes a node along, without secrets, and `nodeagent replay` makes its tables again elsewhere."""

import json
import re
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.bundle import redacted
from nodeagent.cli.replayed_routes import route_commands
from nodeagent.model.objects import EndpointSlice, Service
from tests.harness.objects import make_service, make_slices, manifest_list
from tests.netns.commands.conftest import EXAMPLES, Node

SETTINGS = {"NODEAGENT_TRAFFIC_CLUSTER_CIDRS": "10.244.0.0/16,fd00:244::/32"}
SOURCE = ("--manifests", str(EXAMPLES), "--node-name", "node-a")
LIST = ("nft", "-s", "list", "table", "ip", "nodeagent")


def members(bundle: Path) -> dict[str, Any]:
    with tarfile.open(bundle) as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            text = file.read().decode()
            name = member.name.removeprefix("nodeagent-bundle/")
            found[name] = json.loads(text) if name.endswith(".json") else text
    return found


def test_the_replayed_table_equals_the_bundled_one(node: Node, tmp_path: Path) -> None:
    node.program_examples("--table-ownership=plain")
    bundle = tmp_path / "report.tar.gz"
    done = node.nodeagent("bundle", str(bundle), *SOURCE, environment=SETTINGS)
    assert (done.returncode, done.stderr) == (0, "")
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600

    found = members(bundle)
    assert {one["service"]["metadata"]["name"] for one in found["objects.json"]} == {"empty", "shop", "web"}
    assert [one["service"] for one in found["explain.json"]] == ["default/empty"]
    assert found["diff.json"]["same"]
    assert "table ip nodeagent" in found["ruleset.txt"]
    assert "local 127.0.0.1 dev lo" in found["routes.txt"]
    assert "nodeagent0" in found["links.txt"]
    assert found["check.txt"].startswith(("healthy", "not healthy"))
    assert {"log.txt", "log.error.txt"} & found.keys()
    assert found["about.json"]["sysctls"]["net.ipv4.ip_forward"] == "1"
    assert found["about.json"]["not_listed"] == {}
    assert "10.244.1.10 . 8080" in found["ruleset.txt"], "an endpoint"

    table = node.shell(" ".join(LIST))
    node.shell("nft flush ruleset; nft add table ip somebody")
    done = node.nodeagent("replay", str(bundle), *LIST)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == sorted(table.splitlines())
    assert node.shell("nft list tables") == "table ip somebody\n", "the node's own rules are not touched"
    assert node.nodeagent("replay", str(bundle), "false").returncode == 1
    off_the_path = node.nodeagent(
        "replay", str(bundle), "nodeagent", "show", environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    )
    assert off_the_path.returncode == 0, off_the_path.stderr
    assert "default/" in off_the_path.stdout
    mistyped = node.nodeagent("replay", str(bundle), "nodeagnet", "show")
    assert (mistyped.returncode, mistyped.stdout) == (2, "")
    assert mistyped.stderr == "nodeagent: COMMAND cannot be run: nodeagnet: No such file or directory\n"


def test_of_many_endpoints_nft_lists_everything_else(node: Node, tmp_path: Path) -> None:
    """For a hundred thousand nft needs two seconds."""
    services, endpoints = 22, 1000
    objects: list[Service | EndpointSlice] = []
    for number in range(1, services + 1):
        service = make_service(f"s{number}", f"10.96.0.{number}")
        at = [((f"10.{number}.{last >> 8}.{last & 255}",), "node-b") for last in range(1, endpoints + 1)]
        objects += [service, *make_slices(service, at)]
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "objects.json").write_text(manifest_list(objects))
    source = ("--manifests", str(manifests), "--node-name", "node-a")
    done = node.nodeagent("run", "--once", *source, "--table-ownership=plain", "--families=IPv4")
    assert done.returncode == 0, done.stderr
    node.shell("nft add table inet other; nft 'add set inet other ports { type inet_service; elements = { 4711 }; }'")
    bundle = tmp_path / "report.tar.gz"
    assert node.nodeagent("bundle", str(bundle), *source).returncode == 0

    found = members(bundle)
    assert found["about.json"]["not_listed"] == {"ip backends": services * endpoints}
    rules = found["ruleset.txt"]
    assert "map backends {" in rules
    assert "10.1.0.1 . " not in rules, "an endpoint"
    assert 'comment "default/s22' in rules, "a frontend"
    assert "elements = { 4711 }" in rules, "of another program"
    node.shell("nft flush ruleset")
    replayed = node.nodeagent("replay", str(bundle), "nodeagent", "show", "frontends", "-o", "json")
    assert replayed.stdout.count(f'"pick of {endpoints}"') == services


def test_explain_is_replayed(node: Node, tmp_path: Path) -> None:
    node.program_examples("--table-ownership=plain")
    bundle = tmp_path / "report.tar.gz"
    node.nodeagent("bundle", str(bundle), *SOURCE, environment=SETTINGS)
    node.shell("nft flush ruleset")
    healthy = node.nodeagent("replay", str(bundle), "nodeagent", "explain", "web")
    assert healthy.stdout.startswith("healthy: 3 of 3 endpoints used"), healthy.stdout + healthy.stderr
    assert healthy.returncode == 0
    broken = node.nodeagent("replay", str(bundle), "nodeagent", "explain", "empty")
    assert (broken.returncode, broken.stdout.startswith("broken: ")) == (1, True)


DNS = """
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.10, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]}
"""


@pytest.mark.parametrize(("listens", "verdict"), [(True, "healthy: "), (False, "broken: ")])
def test_names_that_the_node_answers_itself_are_replayed(
    node: Node, tmp_path: Path, *, listens: bool, verdict: str
) -> None:
    (tmp_path / "dns.yaml").write_text(DNS)
    source = ("--manifests", str(tmp_path), "--node-name", "node-a")
    node.shell("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
    names = {"NODEAGENT_DNS_ENABLED": "true", "NODEAGENT_DNS_LISTEN": "10.96.0.10"} if listens else {}
    bundle = tmp_path / "report.tar.gz"
    assert node.nodeagent("bundle", str(bundle), *source, environment=SETTINGS | names).returncode == 0
    done = node.nodeagent("replay", str(bundle), "nodeagent", "explain", "kube-system/kube-dns")
    assert done.stdout.startswith(verdict), done.stdout + done.stderr


SURROUNDINGS = """
ip link add eth0 mtu 1400 type veth peer name far; ip link set far up; ip link set eth0 up
ip link add cni0 type bridge; ip link add pod type veth peer name inside; ip link set inside up
ip link set pod master cni0; ip link set pod up; ip link set cni0 up; bridge link set dev pod hairpin on
ip link add mute type veth peer name deaf; ip link set mute master cni0
ip address add 192.0.2.1/24 dev eth0; ip -6 address add 2001:db8::1/64 dev eth0 nodad; ip address add 10.244.0.1/24 dev cni0
ip route add default via 192.0.2.2; ip -6 route add default via 2001:db8::2
ip route add blackhole 10.244.1.0/24; ip -6 route add fd00:244:1::/64 via 2001:db8::3 dev eth0 metric 7
ip route add 203.0.113.0/24 nexthop via 192.0.2.3 dev eth0 weight 1 nexthop via 192.0.2.4 dev eth0 weight 1
ip route add 198.51.100.0/24 via 192.0.2.9 table 77; ip rule add pref 5 to 198.51.100.0/24 lookup 77
ip rule add pref 6 to 203.0.113.7 prohibit; sysctl -qw net.ipv4.ip_forward=0
"""
SEEN = (
    "ip route show table 77; ip route; ip -6 route; ip rule; ip -6 rule; ip -o link show cni0 | cut -d: -f2; ip -o link show master cni0 | wc -l; "
    "for port in pod mute; do ip -d -o link show $port | grep -o 'hairpin [a-z]*'; done; "
    "sysctl net.ipv4.ip_forward; ip -o link show eth0 | grep -o 'mtu [0-9]*'"
)


def test_routes_and_forwarding_are_replayed(node: Node, tmp_path: Path) -> None:
    """A blackhole for the endpoints of a Service is named there, as on the node."""
    node.program_examples("--table-ownership=plain")
    node.shell(SURROUNDINGS)
    bundle = tmp_path / "report.tar.gz"
    node.nodeagent("bundle", str(bundle), *SOURCE, environment=SETTINGS)
    seen = node.run("sh", "-c", SEEN)
    node.shell(
        "ip link del eth0; ip link del pod; ip link del mute; ip link del cni0; ip route flush type blackhole; ip rule del pref 5; ip rule del pref 6"
    )
    node.shell("sysctl -qw net.ipv4.ip_forward=1; nft flush ruleset")
    done = node.nodeagent("replay", str(bundle), "sh", "-c", SEEN)

    def lines(output: str) -> list[str]:
        return [line for line in output.splitlines() if not re.search(r"nodeagent0|replay-|fe80", line)]

    assert lines(done.stdout) == lines(seen.stdout)
    explained = node.nodeagent("replay", str(bundle), "nodeagent", "explain", "web", "-o", "json")
    says = [one["because"] for one in json.loads(explained.stdout)["findings"]]
    assert any("net.ipv4.ip_forward is 0" in one for one in says), says
    assert any("to 10.244.1.10: a route or rule of type blackhole applies to it" in one for one in says), says


def test_words_in_a_bundle_are_no_commands() -> None:
    """What `ip` would do beyond names, numbers and addresses behind known keywords."""
    routes = (
        "10.1.0.0/24 encap bpf out obj /tmp/x.o section y dev lo\n"
        "10.2.0.0/24 dev lo\n10.3.0.0/24 dev $(reboot)\n-batch /etc/shadow\n10.4.0.0/24 dev lo expires 5sec\n"
    )
    assert [*route_commands(routes)] == [
        "route replace 10.1.0.0/24 dev lo",
        "route replace 10.2.0.0/24 dev lo",
        "route replace 10.3.0.0/24",
        "route replace 10.4.0.0/24 dev lo",
    ]


def test_a_bundle_is_never_written_over_a_file(node: Node, tmp_path: Path) -> None:
    bundle = tmp_path / "report.tar.gz"
    bundle.write_text("mine")
    done = node.nodeagent("bundle", str(bundle), *SOURCE)
    assert (done.returncode, done.stderr) == (1, f"nodeagent: {bundle}: File exists\n")
    assert bundle.read_text() == "mine"


def test_a_file_that_is_not_a_bundle_is_one_line(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    file.write_text("not an archive")
    done = node.nodeagent("replay", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"nodeagent: {file}: it is not a bundle: ")
    with tarfile.open(file, "w:gz") as archive:
        archive.add(__file__, "nodeagent-bundle/recording.json")
    done = node.nodeagent("replay", str(file))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "another version wrote it" in done.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"https://joe:secret@api.example:6443/x", b"https://***@api.example:6443/x"),
        (b"Authorization: Bearer eyJhbGciOi.x.y-z", b"Authorization: Bearer ***"),
        (b"default/web: 10.96.0.10:80 user@host", b"default/web: 10.96.0.10:80 user@host"),
    ],
)
def test_secrets_in_words_of_others_are_struck_out(content: bytes, expected: bytes) -> None:
    assert redacted(content) == expected

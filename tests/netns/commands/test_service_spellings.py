"""However a person names a Service, `nodeagent explain` explains the same one."""

from tests.netns.commands.conftest import EXAMPLES, Node

SOURCE = ("--manifests", str(EXAMPLES), "--node-name", "node-a", "--no-probe", "-o", "name")
SPELLINGS = (
    "web",
    "svc/web",
    "service/web",
    "default/web",
    "web.default.svc.cluster.local",
    "10.96.0.10",
    "10.96.0.10:80",
)


def test_all_of_them(node: Node) -> None:
    printed = {text: node.nodeagent("explain", text, *SOURCE).stdout for text in SPELLINGS}
    printed["-n default"] = node.nodeagent("explain", "svc/web", "-n", "default", *SOURCE).stdout
    assert set(printed.values()) == {"default/web\n"}, printed
    nobody = node.nodeagent("explain", "10.96.255.254", *SOURCE)
    assert (nobody.returncode, nobody.stderr.count("\n")) == (1, 1)
    assert "no Service has address 10.96.255.254 on this node" in nobody.stderr
    assert "no Service has node port 65000" in node.nodeagent("explain", "65000", *SOURCE).stderr

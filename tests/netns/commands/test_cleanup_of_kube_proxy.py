"""`nodeagent cleanup --of kube-proxy` removes the only proxy's rules of a node only when asked twice."""

from tests.netns.commands.conftest import Node

THEIRS = "nft add table ip kube-proxy; nft add chain ip kube-proxy services; nft add table ip6 kube-proxy"
REFUSAL = (
    "nodeagent: there is no table nodeagent: without kube-proxy's rules no service is reachable through this node: "
    "start the agent first, or use --force\n"
)


def test_without_our_tables_nothing_is_removed(node: Node) -> None:
    node.shell(THEIRS)
    before = node.shell("nft list ruleset")
    done = node.nodeagent("cleanup", "--of", "kube-proxy")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", REFUSAL)
    assert node.shell("nft list ruleset") == before


def test_a_dry_run_says_so_and_shows_what_would_go(node: Node) -> None:
    node.shell(THEIRS)
    done = node.nodeagent("cleanup", "--of", "kube-proxy", "--dry-run")
    assert done.returncode == 0
    assert "there is no table nodeagent" in done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_force_removes_it(node: Node) -> None:
    node.shell(THEIRS)
    done = node.nodeagent("cleanup", "--of", "kube-proxy", "--force")
    assert done.returncode == 0
    assert node.shell("nft list tables") == ""


def test_with_our_tables_no_force_is_needed(node: Node) -> None:
    node.shell(THEIRS)
    node.program_examples()
    done = node.nodeagent("cleanup", "--of", "kube-proxy")
    assert (done.returncode, done.stderr) == (0, "")
    assert "kube-proxy" not in node.shell("nft list tables")


def test_where_nothing_is_left_nothing_is_refused(node: Node) -> None:
    done = node.nodeagent("cleanup", "--of", "kube-proxy")
    assert (done.returncode, done.stdout) == (0, "nothing of kube-proxy was here\n")


def test_force_is_for_other_proxies_only(node: Node) -> None:
    done = node.nodeagent("cleanup", "--force")
    assert done.returncode == 2
    assert done.stderr.endswith("Error: --force needs --of\n")

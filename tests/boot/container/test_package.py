"""The package's life on a machine: install, upgrade, remove, purge. In order: each test goes on where the last ended."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from tests.harness.uninterrupted import SHOP, uninterrupted

from .conftest import AGENT, CONFIG, PACKAGES, RELEASES, Node, package
from .machine import ALONE

APISERVER = "nodeagent-apiserver.service"

WITHOUT_SYSTEMD = """
mount -t tmpfs tmpfs $1
mkdir $1/changes $1/work $1/root
mount -t overlay -o lowerdir=$2,upperdir=$1/changes,workdir=$1/work overlay $1/root
mkdir $1/root/packages
mount --bind $3 $1/root/packages
chroot $1/root sh -ec '
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    find /etc /usr /var/lib -not -path "/var/lib/dpkg/*" -not -path "/var/lib/systemd/deb-systemd-helper-*" \\
        -not -path "/usr/lib/python3*/__pycache__*" | sort > /before
    dpkg --install /packages/$0
    nodeagent --version
    kubectl-nodeagent --version
    test "$(kubectl_complete-nodeagent expl | tail -1)" = :4
    dpkg --remove nodeagent
    dpkg --purge nodeagent
    find /etc /usr /var/lib -not -path "/var/lib/dpkg/*" -not -path "/var/lib/systemd/deb-systemd-helper-*" \\
        -not -path "/usr/lib/python3*/__pycache__*" | sort | comm -13 /before - | sed "s/^/left: /"
' $4
"""


def enabled(node: Node, unit: str) -> str:
    return node.machine.run("systemctl", "is-enabled", unit, check=False).stdout.strip()


def active(node: Node, unit: str) -> str:
    return node.machine.show(unit, "ActiveState")


def test_installing_starts_nothing(node: Node) -> None:
    node.install(1)
    for unit in (AGENT, APISERVER):
        assert (enabled(node, unit), active(node, unit)) == ("disabled", "inactive")
    assert "nodeagent" not in node.machine.run("nft", "list", "tables").stdout


def test_the_installed_package_is_complete(node: Node) -> None:
    """Documents aside, which this machine's dpkg is configured not to unpack."""
    faults = node.machine.run("dpkg", "--verify", "nodeagent").stdout.splitlines()
    assert [line for line in faults if "/usr/share/doc/" not in line] == []
    assert node.machine.run("nodeagent", "--version").stdout.startswith("nodeagent, version ")
    checked = node.machine.run("nodeagent", "config", "check", "--config", CONFIG).stdout.splitlines()
    assert [line for line in checked if line.startswith("ok: ")], checked
    for user in ("nodeagent", "nodeagent-apiserver"):
        assert f":/var/lib/{user}:" in node.machine.run("getent", "passwd", user).stdout


def test_the_package_uses_its_own_libraries_only(node: Node) -> None:
    """Neither the environment nor a directory of the system's Python leads it astray."""
    node.machine.write("/usr/lib/python3/dist-packages/click/__init__.py", "raise SystemExit('not this one')")
    assert node.machine.run("env", "PYTHONPATH=/usr/lib/python3/dist-packages", "nodeagent", "--version").stdout
    node.machine.run("rm", "-r", "/usr/lib/python3/dist-packages/click")


def test_every_command_has_a_manual_page(node: Node) -> None:
    pages = node.machine.root / "usr/share/man/man8"
    names = {path.name.removesuffix(".8.gz") for path in pages.glob("nodeagent*")}
    assert {"nodeagent", "nodeagent-run", "nodeagent-config-check", "nodeagent-apiserver", "nodeagent-cleanup"} <= names
    text = gzip.decompress((pages / "nodeagent-run.8.gz").read_bytes()).decode()
    assert "\\-\\-manifests" in text


@pytest.mark.parametrize(
    "file",
    [
        "usr/share/bash-completion/completions/nodeagent",
        "usr/share/zsh/vendor-completions/_nodeagent",
        "usr/share/fish/vendor_completions.d/nodeagent.fish",
    ],
)
def test_shells_complete_its_commands(node: Node, file: str) -> None:
    assert "_NODEAGENT_COMPLETE" in (node.machine.root / file).read_text()


def test_bash_completes(node: Node) -> None:
    completion = ["env", "_NODEAGENT_COMPLETE=bash_complete", "COMP_WORDS=nodeagent cl", "COMP_CWORD=1", "nodeagent"]
    assert node.machine.run(*completion).stdout == "plain,cleanup\n"


def test_the_agent_starts_as_it_was_installed(node: Node) -> None:
    """The example configuration reads an empty directory, whatever this machine is called."""
    node.machine.systemctl("enable", "--now", AGENT)
    assert node.status_text().startswith("0 services, 0 endpoints on ")
    node.machine.write("/etc/nodeagent/services/one.yaml", "kind: List\napiVersion: v1\nitems: []\n")


def test_an_upgrade_restarts_the_agent_and_loses_nothing(node: Node) -> None:
    node.configure()
    node.machine.systemctl("restart", AGENT)
    pid = node.machine.show(AGENT, "MainPID")
    configured = (node.machine.root / CONFIG.lstrip("/")).read_text()
    with uninterrupted(node.cluster) as traffic:
        before = len(node.machine.journal(AGENT))
        node.install(2)
        traffic.flow()
        assert "elements=0 " in node.machine.wait_for_line(AGENT, "sync done .*full=yes", after=before)
    assert node.machine.show(AGENT, "MainPID") != pid
    assert (enabled(node, AGENT), active(node, AGENT)) == ("enabled", "active")
    assert (enabled(node, APISERVER), active(node, APISERVER)) == ("disabled", "inactive")
    assert (node.machine.root / CONFIG.lstrip("/")).read_text() == configured


def test_a_rollback_restarts_the_agent_and_loses_nothing(node: Node) -> None:
    with uninterrupted(node.cluster) as traffic:
        before = len(node.machine.journal(AGENT))
        node.install(1)
        traffic.flow()
        assert "elements=0 " in node.machine.wait_for_line(AGENT, "sync done .*full=yes", after=before)
    shown = node.machine.run("dpkg-query", "--show", "--showformat=${Version}", "nodeagent").stdout
    assert shown.endswith(f"-1~{node.release}")
    node.install(2)


def test_every_module_is_compiled_where_the_service_cannot_write(node: Node) -> None:
    home = node.machine.root / "usr/lib/nodeagent"
    modules = [path for path in home.rglob("*.py") if "nodeagent" in path.relative_to(home).parts]
    compiled = {path.name.partition(".")[0] for path in home.rglob("__pycache__/*.pyc")}
    assert len(modules) > 100
    assert {path.stem for path in modules} <= compiled


def test_the_api_server_feeds_the_agent(node: Node) -> None:
    """From its kubeconfig, put where the agent may read it, with a reload."""
    node.machine.systemctl("start", APISERVER)
    made = "/run/nodeagent-apiserver/kubeconfig"
    node.machine.run("install", "-m", "640", "-g", "nodeagent", made, "/etc/nodeagent/kubeconfig")
    manifests = (node.machine.root / CONFIG.lstrip("/")).read_text()
    from_server = manifests.replace("manifests: /manifests", "kubeconfig: /etc/nodeagent/kubeconfig")
    node.machine.write(CONFIG, from_server)
    before = len(node.machine.journal(AGENT))
    node.machine.systemctl("reload", AGENT)
    node.machine.wait_for_line(AGENT, "starting .* source=kubeconfig", after=before)
    node.machine.wait_for_line(AGENT, r"ready: 1 service, .* on node-a", after=before)
    shown = json.loads(node.machine.run("nodeagent", "show", "-o", "json").stdout)
    assert {entry["service"] for entry in shown} == {"default/kubernetes:https"}
    node.machine.write(CONFIG, manifests)
    node.machine.systemctl("reload", AGENT)
    node.machine.wait_until(lambda: "6 endpoints" in node.status_text(), "the manifests again")


def test_removing_stops_it_and_takes_the_rules(node: Node) -> None:
    printed = node.machine.run("dpkg", "--remove", "nodeagent").stdout
    assert "removed interface nodeagent0, table IPv4, table IPv6" in printed
    assert active(node, AGENT) == "inactive"
    assert "nodeagent" not in node.machine.run("nft", "list", "tables").stdout
    assert not (node.machine.root / "usr/bin/nodeagent").exists()
    assert not (node.machine.root / "usr/lib/nodeagent").exists()
    assert (node.machine.root / CONFIG.lstrip("/")).exists()


def test_installing_again_finds_all_as_it_was(node: Node) -> None:
    node.install(2)
    assert enabled(node, AGENT) == "enabled"
    node.machine.systemctl("start", AGENT)
    assert not node.cluster.world["caller"].ask(SHOP[0], 80, count=10).failures


def test_purging_leaves_only_what_somebody_else_put_there(node: Node) -> None:
    node.machine.run("dpkg", "--purge", "nodeagent")
    left = {path.name for path in (node.machine.root / "etc/nodeagent").rglob("*")}
    assert left == {"kubeconfig", "services", "one.yaml"}
    assert not list((node.machine.root / "var/lib").glob("nodeagent*"))
    assert not list((node.machine.root / "etc/systemd/system").rglob("nodeagent*"))
    assert active(node, AGENT) == "inactive"
    assert node.machine.run("systemctl", "is-system-running", check=False).stdout.strip() == "running"


@pytest.mark.parametrize("release", RELEASES)
def test_installing_where_no_systemd_runs(tmp_path: Path, release: str) -> None:
    """As in building an image: nothing is left after a purge but the two users."""
    given = (str(tmp_path), str(RELEASES[release]), str(PACKAGES), package(1, release).name)
    argv = [*ALONE, "sh", "-ec", WITHOUT_SYSTEMD, "sh", *given]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "nodeagent, version " in result.stdout
    left = [line for line in result.stdout.splitlines() if line.startswith("left: ")]
    assert left == []

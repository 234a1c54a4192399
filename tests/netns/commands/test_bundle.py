"""`nodeagent bundle` takes a node along, without secrets, and `nodeagent replay` makes its tables again elsewhere."""

import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from nodeagent.cli.bundle import redacted
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


def test_what_is_replayed_is_the_table_that_was_bundled(node: Node, tmp_path: Path) -> None:
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


def test_a_bundle_is_never_written_over_a_file(node: Node, tmp_path: Path) -> None:
    bundle = tmp_path / "report.tar.gz"
    bundle.write_text("mine")
    done = node.nodeagent("bundle", str(bundle), *SOURCE)
    assert (done.returncode, done.stderr) == (1, f"nodeagent: {bundle}: File exists\n")
    assert bundle.read_text() == "mine"


def test_what_is_no_bundle_is_one_line(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    file.write_text("not an archive")
    done = node.nodeagent("replay", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(f"nodeagent: {file}: it is no bundle: ")
    with tarfile.open(file, "w:gz") as archive:
        archive.add(__file__, "nodeagent-bundle/recording.json")
    done = node.nodeagent("replay", str(file))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "it is of another version" in done.stderr


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

"""Packages of earlier revisions are upgraded to this one's, taken back and upgraded again, and no connection notices."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.earlier_revision import LAST_OF_SCHEMA, Earlier, archive
from tests.harness.uninterrupted import uninterrupted

from .conftest import AGENT, Node, booted, package

RELEASE = "deb12"
EARLIER = "/earlier"
SAME_SCHEMA = Earlier(7, "86029004")
"""Of the same schema as this one's tables."""
BUILD_SECONDS = 600


def build(earlier: Earlier, place: Path) -> Path:
    """Builds the package of this revision by its own script. Returns the file."""
    tree, built = place / "tree", place / "built"
    for directory in (tree, built):
        directory.mkdir()
    archive(earlier, tree)
    environment = {**os.environ, "PYTHON": sys.executable, "SOURCE_DATE_EPOCH": "0"}
    environment.pop("PYTHONPATH", None)
    script = [str(tree / "systemd" / "packaging" / "build_deb.sh"), str(built), "0", RELEASE]
    subprocess.run(script, cwd=tree, env=environment, check=True, timeout=BUILD_SECONDS)
    (made,) = built.glob("*.deb")
    return made


def install(node: Node, file: str) -> None:
    """Installs this package, and keeps the configuration where its example has changed, which dpkg asks about."""
    node.machine.run("dpkg", "--force-confold", "--install", file)


@pytest.fixture(
    scope="module",
    params=[SAME_SCHEMA, *LAST_OF_SCHEMA],
    ids=lambda earlier: f"schema {earlier.schema}, {earlier.commit}",
)
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, str]]:
    """A machine on which an earlier package serves, and the path of that package on it."""
    place = tmp_path_factory.mktemp("earlier")
    built = build(request.param, place)
    with booted(RELEASE, place, {built.parent: EARLIER}) as node:
        older = f"{EARLIER}/{built.name}"
        install(node, older)
        node.configure()
        node.machine.systemctl("enable", "--now", AGENT)
        yield node, older


def test_no_connection_notices_an_upgrade_a_rollback_and_another_upgrade(upgraded: tuple[Node, str]) -> None:
    node, older = upgraded
    newer = f"/packages/{package(1, RELEASE).name}"
    with uninterrupted(node.cluster) as traffic:
        for file in (newer, older, newer):
            before = len(node.machine.journal(AGENT))
            install(node, file)
            node.machine.wait_for_line(AGENT, " ready: ", after=before)
            traffic.flow()
    assert node.machine.show(AGENT, "ActiveState") == "active"
    assert node.machine.run("nodeagent", "check", check=False).stdout.startswith("healthy")

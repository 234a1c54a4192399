"""What is asked of the agents of other nodes, in a lab: a connection is followed where it begins, a bundle comes of each."""

from pathlib import Path
from typing import Any


def test_a_trace_begins_where_the_pod_is(shared: Any) -> None:
    for source in ("pod/echo-2-1", "10.244.2.10", "node/node-2"):
        done = shared.outside("trace", source, "svc/echo:tcp", "--all-nodes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("arrives: ")
    done = shared.outside("trace", "192.0.2.1", "svc/echo:tcp", "--all-nodes")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--node NAME says where the connection comes in" in done.stderr


def test_a_bundle_of_each_node_is_in_one_archive(shared: Any, tmp_path: Path) -> None:
    archive = tmp_path / "report.tar"
    done = shared.outside("bundle", str(archive), "--all-nodes")
    assert done.returncode == 0, done.stderr
    assert archive.stat().st_mode & 0o777 == 0o600
    for name in ("node-1", "node-2"):
        replayed = shared.outside("replay", "--node", name, str(archive), "nodeagent", "explain", "echo")
        assert replayed.stdout.startswith("healthy"), replayed
        assert f"as node {name}," in replayed.stdout
    assert "name one with --node" in shared.outside("replay", str(archive)).stderr
    assert shared.outside("bundle", str(archive), "--all-nodes").returncode == 1, "what is there is kept"

"""One archive of all nodes: each node's own bundle as it came, logs without credentials, and who is missing and why."""

import asyncio
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nodeagent.cli.all_nodes.cluster_bundle import bundle_cluster
from nodeagent.cli.all_nodes.cluster_options import ClusterTarget
from nodeagent.cli.bundle import redacted
from nodeagent.cli.bundle_archive import open_bundle
from nodeagent.cli.exit_codes import Failure
from nodeagent.cli.recording import NotReplayable
from nodeagent.proxy.source.pod_exec import PROTOCOLS

PODS = "/api/v1/namespaces/kube-system/pods"
BUNDLE = b"\x1f\x8b" + bytes(range(256)) * 8
"""Bytes that are no text."""


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def pod(on: str) -> dict[str, Any]:
    status = {"name": "nodeagent", "state": {"running": {}}, "ready": True}
    return {
        "metadata": {"name": f"agent-{on}"},
        "spec": {"nodeName": on, "containers": [{"name": "nodeagent"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


def says(output: bytes, errors: bytes = b"", code: int = 0) -> Callable[[web.Request], Any]:
    async def serve(request: web.Request) -> web.StreamResponse:
        assert request.query.getall("command") == ["nodeagent", "bundle", "-"]
        opened = web.WebSocketResponse(protocols=PROTOCOLS)
        await opened.prepare(request)
        for channel, content in ((1, output), (2, errors)):
            if content:
                await opened.send_bytes(bytes((channel,)) + content)
        causes = [{"reason": "ExitCode", "message": str(code)}]
        failed = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
        status = failed if code else {"status": "Success"}
        await opened.send_bytes(b"\x03" + json.dumps({"metadata": {}, **status}).encode())
        await opened.close()
        return opened

    return serve


def written(fake_api_server: Callable[[], Any], directory: Path) -> tuple[Path, int, dict[str, str]]:
    """The archive of a cluster of four nodes, one of which has a bundle."""
    archive = directory / "report.tar"

    async def main() -> tuple[int, dict[str, str]]:
        async with fake_api_server() as server:
            server.reply("/api/v1/nodes", {"items": [node(name) for name in ("a", "b", "c", "d")]})
            server.reply(PODS, {"items": [pod(name) for name in ("a", "b", "c")]})
            server.answer(f"{PODS}/agent-a/exec", says(BUNDLE))
            server.answer(f"{PODS}/agent-b/exec", says(b"", b"nodeagent: -: Read-only file system\n", 1))
            server.answer(f"{PODS}/agent-c/exec", says(b"a shell, perhaps, at https://me:secret@example\n"))
            server.reply(f"{PODS}/agent-a/log", b"asked with Bearer abcdefghijklmnop at https://me:secret@example/x\n")
            kubeconfig = directory / "kubeconfig"
            document = {
                "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                "current-context": "c",
            }
            kubeconfig.write_text(json.dumps(document))
            cluster = ClusterTarget((kubeconfig,), None, (), "", "kube-system", 20.0)
            return await asyncio.to_thread(bundle_cluster, cluster, archive, redacted)

    count, missing = asyncio.run(main())
    return archive, count, missing


def test_the_bundle_has_what_arrived_and_names_the_missing_nodes(
    fake_api_server: Callable[[], Any], tmp_path: Path
) -> None:
    archive, count, missing = written(fake_api_server, tmp_path)

    assert (count, set(missing)) == (1, {"b", "c", "d"})
    assert missing["b"] == "-: Read-only file system", "one that is older and cannot write to standard output"
    assert "no pod of an agent in kube-system is on it" in missing["d"]
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as opened:
        found = {one.name: opened.extractfile(one) for one in opened}
        content = {name: file.read() for name, file in found.items() if file is not None}
    assert content["nodeagent-bundles/a.tar.gz"] == BUNDLE
    assert content["nodeagent-bundles/a.log.txt"] == b"asked with Bearer *** at https://***@example/x\n"
    about = json.loads(content["nodeagent-bundles/about.json"])
    assert (about["nodes"], about["missing"]) == (["a", "b", "c", "d"], missing)
    assert not any(b"secret" in one for one in content.values())


def test_a_node_is_taken_out_by_its_name(fake_api_server: Callable[[], Any], tmp_path: Path) -> None:
    archive, _, _ = written(fake_api_server, tmp_path)

    with open_bundle(archive, "a") as file:
        assert file.read() == BUNDLE
    for name, why in ((None, "it holds bundles of a: name one with --node"), ("b", "it has no bundle of b")):
        with pytest.raises(NotReplayable, match=why), open_bundle(archive, name):
            pass
    single = tmp_path / "single.tar.gz"
    single.write_bytes(BUNDLE)
    with open_bundle(single, None) as file:
        assert file.read() == BUNDLE
    with pytest.raises(NotReplayable, match="leave out --node"), open_bundle(single, "a"):
        pass


def test_a_file_that_is_not_an_archive_is_reported(tmp_path: Path) -> None:
    for content in (b"", b"text", bytes(range(256))):
        path = tmp_path / "x"
        path.write_bytes(content)
        with pytest.raises(NotReplayable, match="it is not a bundle"), open_bundle(path, "a"):
            pass


def test_a_cluster_that_cannot_be_asked_leaves_no_file(tmp_path: Path) -> None:
    cluster = ClusterTarget((tmp_path / "nothing",), None, (), "", "kube-system", 20.0)
    with pytest.raises(Failure, match="No such file"):
        bundle_cluster(cluster, tmp_path / "report.tar", redacted)
    assert list(tmp_path.iterdir()) == []

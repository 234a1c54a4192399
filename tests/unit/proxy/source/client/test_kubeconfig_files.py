"""Several kubeconfig files count as one, as kubectl merges those in $KUBECONFIG."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodeagent.cli.user_kubeconfig import kubeconfig_paths
from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.proxy.source.client.credentials import Credential
from nodeagent.proxy.source.client.kubeconfig import context_names, context_namespace, load_kubeconfig
from nodeagent.proxy.source.client.tls import TlsTrust

ROOT = Path(__file__).parents[5]
KUBECTL = ROOT / ".tools" / "kubectl-1.32" / "kubectl"
CA = (ROOT / "tests/contract/source/tls/ca.pem").read_bytes()

Write = Callable[..., list[Path]]


def cluster(name: str, server: str, **more: str) -> dict[str, Any]:
    return {"clusters": [{"name": name, "cluster": {"server": server, **more}}]}


def context(name: str, **parts: str) -> dict[str, Any]:
    return {"contexts": [{"name": name, "context": parts}]}


def user(name: str, token: str) -> dict[str, Any]:
    return {"users": [{"name": name, "user": {"token": token}}]}


CURRENT = {"current-context": "a"}
A = context("a", cluster="c", user="u", namespace="shop")
ONE, TWO = cluster("c", "https://one:6443"), cluster("c", "https://two:6443")
FIRST, LAST = user("u", "first"), user("u", "last")
MERGED: Mapping[str, list[dict[str, Any] | None]] = {
    "each part in another file": [CURRENT, A, ONE, FIRST],
    "the first of two clusters": [{**CURRENT, **A, **ONE}, {**TWO, **FIRST}],
    "the first of two users": [{**CURRENT, **A, **FIRST}, {**ONE, **LAST}],
    "the first of two contexts": [{**CURRENT, **A, **ONE}, {**context("a", cluster="c", user="other"), **FIRST}],
    "the first current context": [
        {**A, **ONE},
        CURRENT,
        {"current-context": "b", **context("b", cluster="c"), **FIRST},
    ],
    "a file that does not exist": [None, {**CURRENT, **A, **ONE, **FIRST}],
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def files(*contents: dict[str, Any] | None) -> list[Path]:
        """Writes a file in a directory of its own for each content; None: no file."""
        paths = []
        for number, content in enumerate(contents):
            path = tmp_path / str(number) / "config"
            path.parent.mkdir()
            if content is not None:
                path.write_text(yaml.safe_dump(content))
            paths.append(path)
        return paths

    return files


@pytest.mark.skipif(not KUBECTL.exists(), reason=f"no {KUBECTL}: `make test` fetches it")
@pytest.mark.parametrize("contents", MERGED.values(), ids=MERGED)
def test_files_are_merged_as_by_kubectl(write: Write, contents: list[dict[str, Any] | None]) -> None:
    paths = write(*contents)
    environment = os.environ | {"KUBECONFIG": os.pathsep.join(map(str, paths))}
    argv = [str(KUBECTL), "config", "view", "--raw", "--minify"]
    merged = paths[0].with_name("merged")
    merged.write_bytes(subprocess.run(argv, env=environment, check=True, capture_output=True).stdout)
    assert meaning_of(paths) == meaning_of([merged])


def meaning_of(paths: list[Path]) -> tuple[str, Credential, str]:
    access = load_kubeconfig(paths)
    return access.server, asyncio.run(access.credentials.current()), context_namespace(paths)


def test_each_path_is_relative_to_the_file_that_names_it(write: Write) -> None:
    paths = write(
        {**CURRENT, **A, **user("u", "t")}, cluster("c", "https://one:6443", **{"certificate-authority": "ca.pem"})
    )
    (paths[1].parent / "ca.pem").write_bytes(CA)
    assert load_kubeconfig(paths).trust == TlsTrust(paths[1].parent / "ca.pem")


def test_contexts_of_all_files_are_known_and_any_can_be_chosen(write: Write) -> None:
    paths = write({**CURRENT, **A}, context("b", cluster="d", namespace="other"), cluster("d", "https://two:6443"))
    assert context_names(paths) == ["a", "b"]
    assert load_kubeconfig(paths, "b").server == "https://two:6443"
    assert context_namespace(paths, "b") == "other"


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        pytest.param([None, None], "kubeconfig {0}: No such file or directory", id="no file"),
        pytest.param(
            [A, {"clusters": 1}], "kubeconfig {1}: clusters: expected array | null, got int", id="a wrong field"
        ),
        pytest.param(
            [{**CURRENT, **A}, user("u", "t")],
            "kubeconfig {0}:{1}: clusters: no entry is named 'c' (from contexts[a].context)",
            id="no cluster",
        ),
        pytest.param(
            [A, CURRENT, user("u", "t"), cluster("c", "")],
            "kubeconfig {3}: clusters[0].cluster.server: not set",
            id="no server",
        ),
        pytest.param(
            [cluster("c", "https://one"), {"current-context": "z"}],
            "kubeconfig {0}:{1}: contexts: no entry is named 'z' (from current-context of {1})",
            id="no context",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file(
    write: Write, contents: list[dict[str, Any] | None], message: str
) -> None:
    paths = write(*contents)
    with pytest.raises(KubeconfigError) as caught:
        load_kubeconfig(paths)
    assert str(caught.value) == message.format(*paths)


def test_the_environment_names_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "one::two")
    assert kubeconfig_paths(None) == (Path("one"), Path("two"))
    assert kubeconfig_paths(Path("given")) == (Path("given"),)
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert kubeconfig_paths(None) == (Path("/home/me/.kube/config"),)

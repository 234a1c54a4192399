"""A kube-proxy counts when it runs in this network namespace."""

from pathlib import Path

import pytest

from nodeagent.proxy.dataplane.kube_proxy.running_kube_proxy import running_kube_proxy


def process(proc: Path, name: str, command: str, namespace: str) -> None:
    (proc / name / "ns").mkdir(parents=True)
    (proc / name / "comm").write_text(f"{command}\n")
    (proc / name / "ns" / "net").symlink_to(namespace)


@pytest.mark.parametrize(
    ("command", "namespace", "expected"),
    [
        pytest.param("kube-proxy", "net:[1]", 412, id="here"),
        pytest.param("kube-proxy", "net:[2]", None, id="in another namespace, as in kind"),
        pytest.param("kubelet", "net:[1]", None, id="another program"),
    ],
)
def test_a_running_kube_proxy_is_found(tmp_path: Path, command: str, namespace: str, expected: int | None) -> None:
    process(tmp_path, "thread-self", "nodeagent", "net:[1]")
    process(tmp_path, "412", command, namespace)
    (tmp_path / "uptime").write_text("1.0 1.0\n")
    (tmp_path / "413").mkdir()

    assert running_kube_proxy(tmp_path) == expected

"""The manifests of deploy/ agree with each other, with the program and with the documents."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from nodeagent import __version__
from nodeagent.cli.run import run_command
from nodeagent.config.load import load_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBECTL = ROOT / ".tools" / "kubectl-1.32" / "kubectl"
COMPONENTS = sorted(path.name for path in (DEPLOY / "components").iterdir())
Document = dict[str, Any]

needs_kubectl = pytest.mark.skipif(
    not KUBECTL.exists() and os.environ.get("CI") != "true", reason="make test brings it"
)
each_variant = pytest.mark.parametrize(
    "components", [(), *((one,) for one in COMPONENTS), tuple(COMPONENTS)], ids="+".join
)


def rendered(folder: Path, *components: str) -> list[Document]:
    """What `kubectl apply -k` sends, of deploy/base with these components."""
    deploy = os.path.relpath(DEPLOY, folder)
    kustomization = {
        "resources": [f"{deploy}/base"],
        "components": [f"{deploy}/components/{one}" for one in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def pod_of(documents: list[Document]) -> Document:
    (daemonset,) = (one for one in documents if one["kind"] == "DaemonSet")
    pod: Document = daemonset["spec"]["template"]["spec"]
    return pod


def containers(pod: Document) -> Iterator[Document]:
    yield from (*pod["initContainers"], *pod["containers"])


def files_of(pod: Document, container: Document, documents: list[Document]) -> set[str]:
    """Paths of the files that ConfigMaps of these documents bring into a container."""
    volumes = {volume["name"]: volume.get("configMap", {}).get("name") for volume in pod["volumes"]}
    data = {one["metadata"]["name"]: one["data"] for one in documents if one["kind"] == "ConfigMap"}
    return {
        f"{mount['mountPath']}/{name}"
        for mount in container["volumeMounts"]
        for name in data.get(volumes[mount["name"]], ())
    }


@needs_kubectl
@each_variant
def test_every_variant_runs_the_agent_with_options_that_it_has(tmp_path: Path, components: tuple[str, ...]) -> None:
    documents = rendered(tmp_path, *components)
    for container in containers(pod_of(documents)):
        assert container["image"] == f"nodeagent:{__version__}"
        command, *options = container["args"]
        assert command == "run"
        with click.Context(run_command) as context:
            run_command.parse_args(context, list(options))
        environment = {one["name"]: one.get("value", "node-a") for one in container["env"]}
        loaded = load_config(
            file=DEPLOY / "base" / "nodeagent.yaml", environment=environment, flags={}, hostname="unnamed"
        )
        assert loaded.config.node.name == "node-a"
        assert not loaded.config.process.manage_sysctls


@needs_kubectl
@each_variant
def test_everything_is_in_the_namespace_of_the_agent(tmp_path: Path, components: tuple[str, ...]) -> None:
    """What names none goes where the administrator happens to be: a Service there finds no pods."""
    namespaces = {
        one["kind"]: one["metadata"].get("namespace")
        for one in rendered(tmp_path, *components)
        if not one["kind"].startswith("Cluster")
    }
    assert set(namespaces.values()) == {"kube-system"}, namespaces


@needs_kubectl
def test_the_configuration_is_where_the_agent_looks_for_it(tmp_path: Path) -> None:
    documents = rendered(tmp_path)
    pod = pod_of(documents)
    for container in containers(pod):
        files = files_of(pod, container, documents)
        assert container["args"][-1] in files
        configuration = yaml.safe_load((DEPLOY / "base" / "nodeagent.yaml").read_text())
        assert configuration["source"]["kubeconfig"] in files


@needs_kubectl
def test_with_kubeadm_the_configuration_is_that_of_kube_proxy(tmp_path: Path) -> None:
    pod = pod_of(rendered(tmp_path, "kubeadm"))
    (configuration,) = (volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume)
    assert configuration == "kube-proxy"
    for container in containers(pod):
        # Where kubeadm's file says that its kubeconfig is: /var/lib/kube-proxy/kubeconfig.conf.
        assert container["args"][-1] == "/var/lib/kube-proxy/config.conf"
        assert container["volumeMounts"][0]["mountPath"] == "/var/lib/kube-proxy"


@needs_kubectl
@each_variant
def test_only_the_init_container_is_privileged(tmp_path: Path, components: tuple[str, ...]) -> None:
    pod = pod_of(rendered(tmp_path, *components))
    (agent,) = pod["containers"]
    rights = agent["securityContext"]
    for_names = ["NET_BIND_SERVICE", "SETUID", "SETGID", "KILL"] if "names" in components else []
    assert rights["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", *for_names]}
    assert rights["readOnlyRootFilesystem"]
    assert not rights["allowPrivilegeEscalation"]
    assert "privileged" not in rights


def test_the_role_is_the_documented_one() -> None:
    document = (ROOT / "docs" / "kubernetes.md").read_text()
    (block,) = (part for part in document.split("```yaml\n") if "kind: ClusterRole\n" in part)
    documented = list(yaml.safe_load_all(block.partition("```")[0]))
    files = [(DEPLOY / "base" / name).read_text() for name in ("serviceaccount.yaml", "rbac.yaml")]
    applied = [one for text in files for one in yaml.safe_load_all(text)]
    for one in documented:
        one["metadata"].pop("namespace", None)
    assert applied == documented

"""The Helm chart is well, and renders what `kubectl kustomize` renders: each fact of deploy/ is in both or the test fails."""

from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from nodeagent import __version__
from tests.repo.test_deploy import COMPONENTS, DEPLOY, Document, needs_kubectl, rendered

CHART: Final = DEPLOY / "helm"
NAMESPACE: Final = "kube-system"
SERVER: Final = "https://control-plane.example:6443"
"""As deploy/base has it."""
VALUES: Final[dict[str, Document]] = {
    "canary": {"canary": True},
    "kubeadm": {"kubeadm": True},
    "metrics": {"metrics": True},
    "names": {"names": {"enabled": True}},
}
"""What a component is here."""
VARIANTS: Final = list(chain.from_iterable(combinations(COMPONENTS, count) for count in range(len(COMPONENTS) + 1)))


@cache
def helm() -> Any:
    """Helm as a library: 50 MB of Go, which only a process that runs these tests loads."""
    import helm_python as library  # noqa: PLC0415

    return library


def of_chart(values: Document, namespace: str = NAMESPACE) -> list[Document]:
    """What `helm install` sends."""
    with helm().Chart.load(CHART) as chart:
        files = chart.render(values, name="nodeagent", namespace=namespace)
    return [one for text in files.values() for one in yaml.safe_load_all(text) if one]


def values_of(*components: str) -> Document:
    """The values that stand for these components."""
    values: Document = {} if "kubeadm" in components else {"server": SERVER}
    for component in components:
        values |= VALUES[component]
    return values


def comparable(documents: list[Document]) -> dict[tuple[str, str], Document]:
    """By kind and name, with files as what they say, and without what only names the contents of a ConfigMap."""
    found = {}
    used = {name for one in documents for name in config_maps_of(one)}
    for one in documents:
        if one["kind"] == "ConfigMap":
            if one["metadata"].pop("name") not in used:
                continue  # with kube-proxy's ConfigMap nobody reads it
            one["metadata"] |= {"name": "configuration"}
            one["metadata"].pop("annotations", None)
            one["data"] = {name: yaml.safe_load(text) for name, text in one["data"].items()}
        if one["kind"] == "DaemonSet":
            for volume in one["spec"]["template"]["spec"]["volumes"]:
                if "configMap" in volume and volume["configMap"]["name"] != "kube-proxy":
                    volume["configMap"]["name"] = "configuration"
        found[one["kind"], one["metadata"]["name"]] = one
    return found


def config_maps_of(document: Document) -> set[str]:
    if document["kind"] != "DaemonSet":
        return set()
    volumes = document["spec"]["template"]["spec"]["volumes"]
    return {volume["configMap"]["name"] for volume in volumes if "configMap" in volume}


def test_every_component_has_its_value() -> None:
    assert sorted(VALUES) == COMPONENTS


@needs_kubectl
@pytest.mark.parametrize("components", VARIANTS, ids="+".join)
def test_the_chart_renders_the_same_as_kustomize(tmp_path: Path, components: tuple[str, ...]) -> None:
    assert comparable(of_chart(values_of(*components))) == comparable(rendered(tmp_path, *components))


@pytest.mark.parametrize("components", VARIANTS, ids="+".join)
def test_the_linter_has_nothing_to_say(components: tuple[str, ...]) -> None:
    report = helm().lint(CHART, values_of(*components), strict=True, namespace=NAMESPACE)
    said = [one["error"] for one in report["messages"] if one["error"] != "icon is recommended"]
    assert (report["total_charts_linted"], report["errors"], said) == (1, [], [])


def test_the_linter_sees_a_template_that_is_broken(tmp_path: Path) -> None:
    for path in CHART.rglob("*"):
        if path.is_file():
            copied = tmp_path / "nodeagent" / path.relative_to(CHART)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(path.read_bytes())
    with (tmp_path / "nodeagent/templates/rbac.yaml").open("a") as file:
        file.write("{{ .Values.missing.part }}\n")
    assert helm().lint(tmp_path / "nodeagent", values_of())["errors"] != []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "server: the address of the API server"),
        ({"server": "192.0.2.10:6443"}, "server"),
        ({"server": SERVER, "cannary": True}, "cannary"),
        ({"server": SERVER, "names": {"listen": "10.0.0.10"}}, "listen"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(values: Document, said: str) -> None:
    with pytest.raises(helm().HelmError, match=said):
        of_chart(values)


def test_the_configuration_is_in_the_file_and_its_hash_in_the_name() -> None:
    def config_map(**configuration: Any) -> Document:
        documents = of_chart({"server": SERVER, "configuration": configuration})
        (found,) = (one for one in documents if one["kind"] == "ConfigMap")
        return found

    plain, changed = config_map(), config_map(traffic={"clusterCIDRs": ["10.0.0.0/8"]}, dataplane={"syncPeriod": "1m"})
    written = yaml.safe_load(changed["data"]["nodeagent.yaml"])
    assert written["traffic"] == {"clusterCIDRs": ["10.0.0.0/8"]}
    assert written["dataplane"] == {"syncPeriod": "1m"}
    assert plain["metadata"]["name"] != changed["metadata"]["name"]
    assert changed["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_the_image_and_the_namespace_are_the_users() -> None:
    image = {"repository": "registry.example/nodeagent", "tag": "0.2.0"}
    documents = of_chart({"server": SERVER, "image": image}, "network")
    (daemonset,) = (one for one in documents if one["kind"] == "DaemonSet")
    pod = daemonset["spec"]["template"]["spec"]
    assert {one["image"] for one in (*pod["initContainers"], *pod["containers"])} == {
        "registry.example/nodeagent:0.2.0"
    }
    (binding,) = (one for one in documents if one["kind"] == "ClusterRoleBinding")
    assert [one["namespace"] for one in binding["subjects"]] == ["network"]
    assert {one["metadata"].get("namespace", "network") for one in documents} == {"network"}


def test_the_version_is_that_of_the_program() -> None:
    with helm().Chart.load(CHART) as chart:
        assert (chart.version, chart.metadata["appVersion"]) == (__version__, __version__)

"""What a plan says of a cluster: facts, differences, and what must be changed first."""

import pytest
from msgspec.structs import replace

from nodeagent.cli.migration.configuration import assess
from nodeagent.cli.migration.found import ClusterState, Node
from nodeagent.cli.migration.manifests import cleaning_pod, known_components, split_image
from nodeagent.cli.migration.outlook import outlook
from tests.unit.cli.migration.cluster import CONFIG, FILES, cluster


def test_a_cluster_of_kubeadm_has_nothing_in_the_way() -> None:
    seen = outlook(cluster())
    assert seen.blockers == ()
    assert seen.notes == ()
    assert any("mode nftables, API server https://192.0.2.1:6443" in fact for fact in seen.facts)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(cluster(), kube_proxy=None), "no DaemonSet kube-system/kube-proxy"),
        (replace(cluster(), configuration=None), "no ConfigMap kube-system/kube-proxy"),
        (replace(cluster(), configuration={}), "no config.conf"),
        (replace(cluster(), configuration={"config.conf": CONFIG}), "no server in kubeconfig.conf"),
        (replace(cluster(), configuration={**FILES, "config.conf": ": ["}), "not valid YAML"),
        (
            replace(cluster(), configuration={**FILES, "config.conf": f"{CONFIG}bindAddressHardFail: true\n"}),
            "bindAddressHardFail",
        ),
        (replace(cluster(), kubernetes=("192.0.2.1",)), "is the Service `kubernetes`"),
        (replace(cluster(), nodes=(Node("r", ready=True, architecture="riscv64"),)), "node r is riscv64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_blockers_that_must_be_changed_first(found: ClusterState, words: str) -> None:
    assert any(words in line for line in outlook(found).blockers)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mode: ipvs", "drain each node"),
        ("mode: iptables", "every address of the node"),
        ("ipvs: {strictARP: true}", "ipvs.strictARP has no effect"),
    ],
)
def test_differences_are_named(line: str, words: str) -> None:
    text = CONFIG.replace('mode: "nftables"\n', "") + line
    assert any(words in note for note in assess({**FILES, "config.conf": text}, ()).notes)


def test_a_row_says_what_each_node_has() -> None:
    rows = outlook(cluster(agents="a", unready=True, kube_proxy="b", removed="b")).rows
    assert [tuple(row.values()) for row in rows] == [("a", "not ready", "-", "there"), ("b", "-", "ready", "removed")]


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("nodeagent:0.1.0", ("nodeagent", "0.1.0")),
        ("registry.example:5000/net/nodeagent:1", ("registry.example:5000/net/nodeagent", "1")),
        ("registry.example:5000/nodeagent", ("registry.example:5000/nodeagent", "")),
    ],
)
def test_the_name_and_the_tag_of_an_image(image: str, parts: tuple[str, str]) -> None:
    assert split_image(image) == parts


def test_components_are_those_of_the_manifests() -> None:
    assert {"names", "metrics"} <= set(known_components())
    assert not {"kubeadm", "canary"} & set(known_components())


def test_the_pod_that_cleans_up_may_change_rules_and_nothing_else() -> None:
    (container,) = cleaning_pod("n", "i")["spec"]["containers"]
    assert container["args"] == ["cleanup"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}

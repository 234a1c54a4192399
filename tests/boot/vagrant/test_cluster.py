"""The Vagrantfile's cluster from `vagrant up` to `vagrant destroy`. In order: each test goes on where the last ended."""

import re

import pytest

from .conftest import Cluster, Row

WORKERS = ("worker1", "worker2")
MACHINES = ("control", *WORKERS)
PODS = {"echo-1-1", "echo-1-2", "echo-2-1", "echo-2-2"}
pytestmark = pytest.mark.timeout(7200)
"""Each command has its own, shorter patience, and its end says which it was."""
UNITS = "nodeagent nodeagent-apiserver nodeagent-pod@echo-1-1 nodeagent-pod@echo-1-2"


@pytest.fixture(scope="module")
def table(cluster: Cluster) -> dict[str, Row]:
    """What verify.sh says of the cluster that has just come up."""
    return cluster.verify()


def processes(cluster: Cluster, machine: str) -> str:
    """Which process each service of the machine is, and since when the kernel has its tables."""
    return cluster.on(machine, f"systemctl show --property Id,MainPID,NRestarts {UNITS}; nft list tables")


def test_every_check_passes(table: dict[str, Row]) -> None:
    assert {name: row for name, row in table.items() if row.result != "pass"} == {}


@pytest.mark.parametrize(
    "name",
    [
        *(f"the agent on {machine} is ready" for machine in MACHINES),
        *(f"pod on {worker} -> ClusterIP -> pods on every worker" for worker in WORKERS),
        *(f"pod on {worker} -> name -> pods on every worker" for worker in WORKERS),
        *(f"machine {machine} -> ClusterIP -> pods" for machine in MACHINES),
        *(f"outside -> NodePort on {machine} -> pods" for machine in MACHINES),
        *(f"the agent on {worker} restarts, under load" for worker in WORKERS),
        "the API server is away for 5 s, under load",
        "a new Service reaches every machine",
        "a deleted Service leaves every machine",
    ],
)
def test_each_check_was_made(table: dict[str, Row], name: str) -> None:
    assert name in table


def test_every_way_leads_to_the_pods_of_all_machines(table: dict[str, Row]) -> None:
    ways = [row.seen for name, row in table.items() if " -> " in name]
    assert len(ways) == 10
    for seen in ways:
        assert set(re.findall(r"echo-\S+", seen)) == PODS


def test_no_connection_fails_under_load(table: dict[str, Row]) -> None:
    disturbed = [row.seen for name, row in table.items() if name.endswith("under load")]
    assert len(disturbed) == 3
    for seen in disturbed:
        counted = re.match(r"(\d+) answered, 0 failed, ", seen)
        assert counted, seen
        assert int(counted[1]) > 20


@pytest.mark.parametrize("pod", ["caller-1", "echo-1-1"])
def test_pods_have_the_resolver_that_kubernetes_gives_them(cluster: Cluster, pod: str) -> None:
    """One that `ip netns exec` enters, and one that a service of systemd is."""
    enter = f"ip netns exec {pod}"
    if pod.startswith("echo"):
        enter = f"nsenter --mount --target $(systemctl show --value --property MainPID nodeagent-pod@{pod})"
    lines = cluster.on("worker1", f"{enter} cat /etc/resolv.conf").splitlines()
    assert lines[0].startswith("search default.svc.cluster.local svc.cluster.local cluster.local")
    assert lines[1:] == ["nameserver 10.96.0.10", "options ndots:5"]


def test_names_are_answered_by_a_process_that_has_no_rights(cluster: Cluster) -> None:
    status = cluster.on("worker1", "cat /proc/$(pgrep --full nodeagent[.]dns[.]server)/status")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert "0" not in fields["Uid"].split()
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0


def test_workers_have_credentials_that_only_read(cluster: Cluster) -> None:
    worker = (cluster.state / "nodeagent" / "worker" / "kubeconfig").read_text()
    admin = (cluster.state / "nodeagent" / "admin.kubeconfig").read_text()
    (token,) = re.findall(r'"token": "(.*)"', admin)
    assert token not in worker
    found = cluster.on(
        "worker1", f"! grep -rlF {token} /etc /var/lib/nodeagent /home /root; stat -c %a:%G /etc/nodeagent/kubeconfig"
    )
    assert found.split() == ["640:nodeagent"]


@pytest.mark.parametrize("machine", ["control", "worker1"])
def test_provisioning_again_changes_nothing(cluster: Cluster, machine: str) -> None:
    before = processes(cluster, machine)
    said = re.findall(r"nodeagent: \S+: (.*)", cluster.vagrant("provision", machine, "--no-color"))
    assert len(said) == 1, said
    assert said[0].startswith("ready: ")
    assert processes(cluster, machine) == before


def test_a_worker_can_follow_an_existing_cluster_instead(cluster: Cluster) -> None:
    """Here that is the one on `control`, of which a Vagrantfile with an existing cluster knows nothing."""
    existing = {"NODEAGENT_KUBECONFIG": str(cluster.state / "nodeagent" / "admin.kubeconfig"), "NODEAGENT_WORKERS": "1"}
    cluster.vagrant("provision", "worker1", "--no-color", **existing)
    table = cluster.verify(**existing)
    assert {name: row for name, row in table.items() if row.result != "pass"} == {}
    assert list(table) == [
        "the agent on worker1 is ready",
        "pod on worker1 -> default/kubernetes",
        "pod on worker1 -> name -> default/kubernetes",
        "machine worker1 -> default/kubernetes",
        "the agent on worker1 restarts, under load",
    ]


def test_destroying_leaves_no_machine(cluster: Cluster) -> None:
    cluster.vagrant("destroy", "--force")
    left = cluster.sandbox.run("virsh", "-c", "qemu:///system", "list", "--all", "--name").stdout
    assert left.strip() == ""

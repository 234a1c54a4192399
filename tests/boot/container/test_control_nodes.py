"""Three control nodes, made by what Vagrant runs on its machines: they form a control plane, and one of them may be lost."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from nodeagent.lab.net.network_namespaces import DIRECTORY, run_ip
from tests.harness.etcd_hosts import hosts

from .conftest import TREE
from .machine import Machine
from .provisioning import NETWORK, SECONDS, archive, begin_provisioning, end_provisioning, make_credentials

NODES = {"control": 0, "control2": 12, "control3": 13}
OBJECTS = "/usr/local/lib/nodeagent-cluster/objects.py"


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The archive that a control node is given."""
    credentials = make_credentials(tmp_path_factory.mktemp("vagrant"), NODEAGENT_CONTROL_NODES="3")
    return archive(credentials / "control")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Machine]]:
    """On a bridge of their own, with nothing of ours in them."""
    with ExitStack() as stack:
        wires = stack.enter_context(hosts(len(NODES)))
        found = {}
        for (name, number), host in zip(NODES.items(), wires.members, strict=True):
            run_ip(["-n", host.namespace], [f"addr add {NETWORK}.{10 + number}/24 dev eth0"])
            place = tmp_path_factory.mktemp(name)
            found[name] = stack.enter_context(Machine(TREE, place, DIRECTORY / host.namespace, binds={}))
        yield found


def provision(machine: Machine, name: str, upload: bytes) -> None:
    """As Vagrant does: it ends before anybody else was begun with."""
    unit = begin_provisioning(machine, upload, NAME=name, NUMBER=NODES[name], WORKERS=1, CONTROLS=3)
    end_provisioning(machine, unit)


def until_shown(machines: dict[str, Machine], service: str) -> None:
    """The agent on each machine has programmed it."""
    for name, machine in machines.items():

        def shows(machine: Machine = machine) -> bool:
            return f"default/{service}" in machine.run("nodeagent", "show", "services", check=False).stdout

        machine.wait_until(shows, f"{service} on {name}", seconds=SECONDS)


def until_exposed(machine: Machine, service: str, address: str) -> None:
    """The API server there has taken the Service."""

    def passes() -> bool:
        return machine.run("python3", OBJECTS, "expose", service, address, check=False).returncode == 0

    machine.wait_until(passes, f"a server that takes {service}", seconds=SECONDS)


@pytest.fixture(scope="module")
def control_plane(machines: dict[str, Machine], upload: bytes) -> dict[str, Machine]:
    """Provisioned one after the other."""
    for name, machine in machines.items():
        provision(machine, name, upload)
    return machines


def test_every_node_serves_and_follows(control_plane: dict[str, Machine]) -> None:
    until_shown(control_plane, "echo")
    for number, (name, machine) in enumerate(control_plane.items()):
        until_exposed(machine, f"by-{name}", f"10.96.0.{90 + number}")
        until_shown(control_plane, f"by-{name}")


def test_provisioning_again_changes_nothing(control_plane: dict[str, Machine], upload: bytes) -> None:
    machine = control_plane["control2"]
    units = ("etcd", "nodeagent-apiserver", "nodeagent")
    before = [machine.show(unit, "MainPID") for unit in units]
    assert "0" not in before
    provision(machine, "control2", upload)
    after = [machine.show(unit, "MainPID") for unit in units]
    assert after == before, "\n".join(line for unit in units for line in machine.journal(unit))


def test_two_go_on_without_the_third(control_plane: dict[str, Machine]) -> None:
    """Each is lost once, as at a loss of power, the leader and the one that runs the controllers among them; it comes back."""
    for number, (name, machine) in enumerate(control_plane.items()):
        machine.systemctl("kill", "--signal=KILL", "etcd", "nodeagent-apiserver")
        machine.systemctl("stop", "etcd", "nodeagent-apiserver")
        other = next(one for key, one in control_plane.items() if key != name)
        until_exposed(other, f"without-{name}", f"10.96.0.{100 + number}")
        until_shown(control_plane, f"without-{name}")
        machine.systemctl("start", "--no-block", "etcd", "nodeagent-apiserver")
        until_exposed(machine, f"again-{name}", f"10.96.0.{110 + number}")

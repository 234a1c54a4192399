"""Names in the cluster of Vagrant's machines, made by what Vagrant runs on them: a control node and a worker with pods."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from nodeagent.lab.net.network_namespaces import DIRECTORY, run_ip
from tests.harness.etcd_hosts import hosts

from .conftest import AGENT, TREE
from .machine import Machine
from .provisioning import NETWORK, SECONDS, archive, begin_provisioning, end_provisioning, make_credentials

NODES = {"control": 0, "worker1": 1}
LOAD = "/usr/local/lib/nodeagent-cluster/load.py"
BY_NAME = ("http:echo:80", "http:echo.default.svc.cluster.local:80")
KINDS = {"control": "control", "worker1": "worker"}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Both are provisioned at once, as Vagrant does."""
    credentials = make_credentials(tmp_path_factory.mktemp("vagrant"), NODEAGENT_WORKERS="1")
    with ExitStack() as stack:
        wires = stack.enter_context(hosts(len(NODES)))
        begun = []
        for (name, number), host in zip(NODES.items(), wires.members, strict=True):
            run_ip(["-n", host.namespace], [f"addr add {NETWORK}.{10 + number}/24 dev eth0"])
            network = DIRECTORY / host.namespace
            machine = stack.enter_context(Machine(TREE, tmp_path_factory.mktemp(name), network, binds={}))
            upload = archive(credentials / KINDS[name])
            unit = begin_provisioning(machine, upload, NAME=name, NUMBER=number, WORKERS=1, CONTROLS=1)
            begun.append((machine, unit))
        for machine, unit in begun:
            end_provisioning(machine, unit)
        yield begun[-1][0]


def in_pod(machine: Machine, *argv: str) -> str:
    return machine.run("ip", "netns", "exec", "caller-1", *argv).stdout


def call(machine: Machine, *targets: str, count: int = 40) -> bool:
    """Whether every connection of a pod leads to one of the two pods, and both of them answer."""
    arguments = ["--count", str(count), "--pods", "2", *targets]
    return not machine.run("ip", "netns", "exec", "caller-1", "python3", LOAD, *arguments, check=False).returncode


def test_a_pod_has_the_resolver_that_kubernetes_gives_it(worker: Machine) -> None:
    for command in (
        in_pod(worker, "cat", "/etc/resolv.conf"),
        worker.run(
            "nsenter", "-m", "-t", worker.show("nodeagent-pod@echo-1-1", "MainPID"), "cat", "/etc/resolv.conf"
        ).stdout,
    ):
        search, *others = command.splitlines()
        assert search.startswith("search default.svc.cluster.local svc.cluster.local cluster.local")
        assert others == ["nameserver 10.96.0.10", "options ndots:5"]


def test_a_pod_calls_the_service_by_name(worker: Machine) -> None:
    worker.wait_until(lambda: call(worker, *BY_NAME), "calls by name", seconds=SECONDS)


def test_no_call_by_name_fails_when_the_agent_is_restarted_or_stopped(worker: Machine) -> None:
    for what in ("restart", "stop"):
        worker.systemctl(what, AGENT)
        assert call(worker, *BY_NAME)


def test_a_name_that_is_not_there_is_an_error(worker: Machine) -> None:
    """The control."""
    assert not call(worker, "http:nobody:80", count=1)

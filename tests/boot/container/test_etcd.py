"""The API server and an etcd as services of one machine, set up by what the documentation says."""

import re
import textwrap

from tests.harness.documented_commands import run_by

from .conftest import Node

ETCD, APISERVER = "etcd.service", "nodeagent-apiserver.service"
ADDRESS = "127.0.0.1"
DEADLINE_SECONDS = 120.0
READY = textwrap.dedent(
    """
    import ssl, sys, urllib.error, urllib.request
    context = ssl._create_unverified_context()
    try:
        print(urllib.request.urlopen("https://127.0.0.1:6443/readyz?verbose", context=context, timeout=20).status)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode())
    except OSError as error:
        print(0, error)
    """
)


def commands() -> str:
    """The block of the documentation, for one machine instead of three."""
    (block,) = run_by("tests/boot/container/test_etcd.py", "docs/apiserver.md")
    alone = re.sub(r",b=http://\S+", "", block.commands).replace("192.0.2.1", ADDRESS)
    assert "b=" not in alone
    return alone


def ready(node: Node) -> str:
    return node.machine.run("python3", "-c", READY).stdout.strip()


def keys(node: Node) -> list[str]:
    found = node.machine.run("env", "ETCDCTL_API=3", "etcdctl", "get", "--prefix", "/registry/", "--keys-only")
    return found.stdout.split()


def becomes_ready(node: Node) -> None:
    node.machine.wait_until(lambda: ready(node) == "200", "a ready API server", seconds=DEADLINE_SECONDS)


def test_they_start_together_fail_together_and_come_back(node: Node) -> None:
    node.install(1)
    node.machine.run("sh", "-ec", commands())
    becomes_ready(node)
    assert node.machine.show(APISERVER, "ActiveState") == "active"
    assert ETCD in node.machine.show(APISERVER, "After").split()
    assert "/registry/services/specs/default/kubernetes" in keys(node)

    node.machine.systemctl("stop", ETCD)
    node.machine.wait_until(lambda: "[-]etcd failed" in ready(node), "a failing check", seconds=DEADLINE_SECONDS)
    process = node.machine.show(APISERVER, "MainPID")
    node.machine.systemctl("start", ETCD)
    becomes_ready(node)
    assert node.machine.show(APISERVER, "MainPID") == process, "it went on"

    # With the machine both are gone, and nobody waits for the other's port.
    node.machine.systemctl("stop", APISERVER, ETCD)
    node.machine.systemctl("start", APISERVER, ETCD)
    becomes_ready(node)
    assert "/registry/services/specs/default/kubernetes" in keys(node)

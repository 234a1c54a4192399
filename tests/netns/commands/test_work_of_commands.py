"""What a command asks the kernel and the agent for does not grow with the Services; nor does it load a library that it does not need.

Counts, not times: `make bench-commands` measures these.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodeagent.model.addresses import Family
from nodeagent.model.objects import EndpointSlice, Service
from tests.harness.objects import make_service, make_slices, manifest_list
from tests.netns.commands.conftest import NODEAGENT, ROOT, Node

pytestmark = pytest.mark.kernel

FEW, MANY = 20, 1000
"""A few, of which commands follow as many connections as of many."""
MOST_ASKED = 6
"""Requests to the agent: its status, its objects and its problems; twice where an address is to be found first,
and where a bundle also has the agent's passes and belief."""
MOST_DUMPS = 100
"""A table has 37 sets, of which each is dumped once, and a command reads routes, links and rules of others besides."""
MOST_OF_PROC = 10
"""The kernel walks the sockets of the whole machine for some of these."""
READY_SECONDS = 60.0
WIRING = """
ip link add out type veth peer name far
ip link set far up
ip link set out up
ip address add 192.0.2.1/24 dev out
ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev out nud permanent
ip route add default via 192.0.2.2 dev out
"""
COMMANDS = {
    "version": ("version",),
    "explain": ("explain",),
    "explain SERVICE": ("explain", "s7", "--no-probe"),
    "explain ADDRESS": ("explain", "10.96.0.8", "--no-probe"),
    "check": ("check",),
    "problems": ("problems",),
    "trace": ("trace", "192.0.2.1", "default/s7"),
    "diff": ("diff",),
    "journal": ("journal",),
    "log-level": ("log-level",),
}
WITHOUT_SOCKET = {"show": ("show",), "top": ("top", "--once", "--every", "0.1")}


def manifests(directory: Path, count: int) -> None:
    """So many Services with two endpoints elsewhere."""
    found: list[Service | EndpointSlice] = []
    for number in range(1, count + 1):
        service = make_service(f"s{number}", f"10.96.{number >> 8}.{number & 255}")
        at = [(f"10.{32 + number // 100}.{number % 100}.{last}",) for last in (1, 2)]
        found += [service, *make_slices(service, [(addresses, "node-b") for addresses in at])]
    (directory / "objects.json").write_text(manifest_list(found))


@contextmanager
def agent(node: Node, directory: Path, socket: Path) -> Iterator[None]:
    options = (
        "--node-name=node-a",
        f"--families={Family.IPV4.value}",
        "--cluster-cidr=10.32.0.0/11",
        f"--socket={socket}",
    )
    argv = ["ip", "netns", "exec", node.name, *NODEAGENT, "run", f"--manifests={directory}", *options]
    with (directory.parent / f"{directory.name}.log").open("w") as log:
        process = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)
    try:
        end = time.monotonic() + READY_SECONDS
        while "healthy: no problems" not in node.nodeagent("problems", f"--socket={socket}").stdout:
            assert process.poll() is None, Path(log.name).read_text()[-2000:]
            assert time.monotonic() < end
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(READY_SECONDS)


def work_of(node: Node, directory: Path, *arguments: str) -> dict[str, Any]:
    """What the command did; it must say that all is well."""
    counted = directory / "counted.json"
    program = str(ROOT / "tests" / "harness" / "counted_command.py")
    done = node.run(sys.executable, program, str(counted), *arguments, environment={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(counted.read_text())
    return found


@pytest.fixture
def works(node: Node, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, dict[str, Any]]]:
    """Number of Services → command → what it did."""
    node.shell(WIRING)
    found = {}
    for count in (FEW, MANY):
        directory = tmp_path_factory.mktemp("w")
        socket = directory / "a.sock"
        objects = directory / "objects"
        objects.mkdir()
        manifests(objects, count)
        with agent(node, objects, socket):
            found[count] = {
                name: work_of(node, directory, *arguments)
                for name, arguments in {
                    **{name: (*arguments, f"--socket={socket}") for name, arguments in COMMANDS.items()},
                    **WITHOUT_SOCKET,
                    "bundle": ("bundle", str(directory / "bundle.tar.gz"), f"--socket={socket}"),
                    "control": ("plan", f"--manifests={objects}", f"--socket={socket}"),
                }.items()
            }
    return found


def test_no_command_asks_for_more_where_there_are_many_services(works: dict[int, dict[str, dict[str, Any]]]) -> None:
    few, many = works[FEW], works[MANY]
    assert many == few
    assert many["control"]["modules"] != []
    assert [name for name, one in many.items() if one["modules"]] == ["control"]
    assert max(many[name]["asked"] for name in (*COMMANDS, "bundle")) <= MOST_ASKED
    assert many["bundle"]["dumps"] == many["diff"]["dumps"], "it reads the tables once"
    assert many["bundle"]["programs"] > 0 == many["explain"]["programs"]
    assert max(one.get("dumps", 0) for one in many.values()) <= MOST_DUMPS
    assert max(one.get("proc", 0) for one in many.values()) <= MOST_OF_PROC
    assert many["version"].get("dumps", 0) == many["problems"].get("dumps", 0) == 0 < many["diff"]["dumps"]

"""A lab is there after `up`, works from everywhere, and is gone after `down`."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from nodeagent.lab.api import Access, Api
from nodeagent.lab.caller import ask
from nodeagent.lab.net.network_namespaces import is_alive
from nodeagent.lab.supervisor_messages import Connect, Connected
from tests.harness.stopwatch import allowed, waited_for_processor

pytestmark = pytest.mark.slow

READY_WITHIN = 15.0

FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"


def rows(text: str, heading: str) -> list[list[str]]:
    """The rows of the table whose first heading this is, as words."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(heading)) + 1
    end = next((number for number in range(start, len(lines)) if not lines[number]), len(lines))
    return [line.split() for line in lines[start:end]]


def processes_of(namespaces: list[str]) -> set[int]:
    numbers = {(Path("/run/netns") / name).stat().st_ino for name in namespaces}
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "ns/net").stat().st_ino in numbers:
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def test_three_nodes_are_up_and_programmed_in_time_and_leave_nothing(bench: Any) -> None:
    up = bench.run("up", "--nodes", "3", "--pods", "2")
    assert (up.status, up.errors) == (0, "")
    supervisor = bench.supervisor()
    namespaces = bench.namespaces(supervisor)
    processes = processes_of(namespaces)
    assert up.seconds < allowed(READY_WITHIN) + waited_for_processor({supervisor, *processes})
    status = bench.do("status")

    assert len(rows(status, "NODE")) == 3
    assert len(rows(status, "POD")) == 6
    for node in rows(status, "NODE"):
        have, _, want = node[-3:]
        assert have == want == "13", "6 pods on 2 ports, and the API server"
        assert node[3:6] == ["running", "0", "yes"]

    assert bench.do("down") == "removed lab lab\n"
    assert bench.namespaces(supervisor) == []
    assert not any(map(is_alive, {supervisor, *processes}))
    assert list(bench.base.iterdir()) == []
    assert bench.do("down") == "there was no lab lab\n"


def test_a_pod_finds_services_by_name_with_the_resolv_conf_that_kubernetes_writes(shared: Any) -> None:
    read = ("sh", "-c", "cat /etc/resolv.conf; getent ahostsv4 echo; getent ahostsv6 kubernetes.default.svc || true")
    shown = shared.do("exec", "caller-1", "--", *read)
    search = "search default.svc.cluster.local svc.cluster.local cluster.local"
    assert shown.startswith(f"{search}\nnameserver 10.96.0.10\noptions ndots:5\n")
    assert "echo.default.svc.cluster.local" in shown
    fetched = shared.do("exec", "echo-1-1", "--", sys.executable, "-c", FETCH, "http://echo.default/")
    assert fetched.startswith("echo-")
    machine = Path("/etc/resolv.conf").read_text()
    assert shared.do("exec", "node-1", "--", "cat", "/etc/resolv.conf") == machine


def test_a_lab_without_names_and_page_uses_the_machines_resolvers(bench: Any) -> None:
    printed = bench.do("up", "--nodes", "1", "--pods", "1", "--no-dns", "--no-page")
    assert "http" not in printed + bench.do("status")
    assert bench.do("exec", "caller-1", "--", "cat", "/etc/resolv.conf") == Path("/etc/resolv.conf").read_text()
    refused = bench.run("fault", "dns", "--for", "0.1")
    assert (refused.status, refused.errors.count("\n")) == (1, 1)
    assert "the lab was made without DNS" in refused.errors


def test_a_second_up_is_refused_and_harms_nothing(shared: Any) -> None:
    again = shared.run("up")

    assert again.status == 1
    assert again.errors == "nodeagent: lab lab exists already: take it down first, or use another --name\n"
    assert "running" in shared.do("status")


def test_labs_live_side_by_side(shared: Any) -> None:
    shared.do("up", "--nodes", "1", "--pods", "1", name="other")
    try:
        assert len(rows(shared.do("status", name="other"), "POD")) == 1
        assert len(rows(shared.do("status"), "POD")) == 4
        answer = shared.run("status", name="third")
        assert answer.status == 1
        assert answer.errors.endswith("there is lab, other\n")
    finally:
        shared.do("down", name="other")
    assert len(rows(shared.do("status"), "NODE")) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        pytest.param(["up", "--nodes", "0"], 2, "--nodes 0: from 1 to 50", id="no nodes"),
        pytest.param(["up", "--pods", "101"], 2, "--pods 101: from 0 to 100, on each node", id="too many pods"),
        pytest.param(["up", "--api", "here"], 2, "--api 'here' is neither 'embedded' nor", id="no URL"),
        pytest.param(["status"], 1, "there is no lab lab: `nodeagent lab up` makes one", id="no lab"),
        pytest.param(["exec", "node-1", "--", "true"], 1, "there is no lab lab", id="exec without a lab"),
        pytest.param(["fault", "cut"], 1, "there is no lab lab", id="fault without a lab"),
        pytest.param(["load"], 1, "there is no lab lab", id="load without a lab"),
        pytest.param(["logs", "node-1"], 1, "there is no lab lab", id="logs without a lab"),
        pytest.param(["up", "--api", "https://127.0.0.1:1"], 1, "--api https://127.0.0.1:1: Connection r", id="nobody"),
        pytest.param(["kubeconfig"], 1, "there is no lab lab", id="kubeconfig without a lab"),
    ],
)
def test_an_impossible_lab_is_one_line(bench: Any, arguments: list[str], status: int, words: str) -> None:
    outcome = bench.run(*arguments)

    assert outcome.status == status
    assert outcome.errors.startswith(f"nodeagent: {words}")
    assert outcome.errors.count("\n") == 1
    assert list(bench.base.iterdir()) == []


def test_a_name_that_is_a_path_is_refused(bench: Any) -> None:
    outcome = bench.run("up", name="../lab")

    assert outcome.status == 2
    assert outcome.errors.startswith("nodeagent: '../lab': a lab's name has")


@pytest.mark.parametrize(
    ("place", "status", "words"),
    [
        pytest.param("/etc/passwd", 1, "/etc/passwd/lab", id="below a file"),
        pytest.param("/proc/no-such", 1, "/proc/no-such", id="where nobody can write"),
        pytest.param(f"/tmp/{'a' * 120}", 2, f"/tmp/{'a' * 120}/lab/socket is too long for a socket", id="too long"),
    ],
)
def test_files_that_cannot_be_are_one_line(bench: Any, place: str, status: int, words: str) -> None:
    bench.environment["NODEAGENT_LAB_DIR"] = place
    outcome = bench.run("up", "--nodes", "1")

    assert (outcome.status, outcome.output) == (status, "")
    assert outcome.errors.startswith(f"nodeagent: {words}")
    assert outcome.errors.count("\n") == 1
    assert not Path(f"/tmp/{'a' * 120}").exists()


@pytest.mark.parametrize("arguments", [["up"], ["fault"], ["exec"], ["--help"]], ids=lambda a: a[0])
def test_help_needs_no_root_but_a_lab_does(arguments: list[str]) -> None:
    program = "import os, sys; from nodeagent.cli.main import main; os.setuid(65534); main(prog_name='nodeagent')"

    def ask(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", program, "lab", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])

    assert ask(*arguments, "--help").stdout.startswith("Usage: nodeagent lab")
    refused = ask("up")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr == "nodeagent: a lab is made of network namespaces: run it as root\n"


def test_an_agent_that_does_not_start_is_reported_with_its_message(bench: Any) -> None:
    outcome = bench.run("up", "--nodes", "1", "--pods", "1", "--agent-option=--no-such")

    assert outcome.status == 1
    assert "while waiting for the agent of node-1: Error: No such option '--no-such'" in outcome.errors
    assert list(bench.base.iterdir()) == []


def test_an_agent_is_shown_as_what_it_is_and_ends_and_begins_alone(shared: Any) -> None:
    def agents(node: str) -> list[int]:
        namespace = next(one for one in shared.namespaces(shared.supervisor()) if one.endswith(f"-{node}"))
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in processes_of([namespace])}
        return [pid for pid, words in lines.items() if words[1:4] == ["-m", "nodeagent", "run"]]

    forked, (other,) = agents("node-1"), agents("node-2")
    assert len(forked) == 1
    assert os.getsid(forked[0]) == forked[0]
    assert shared.run("fault", "restart", "node-1").status == 0
    (begun,) = agents("node-1")
    assert begun not in forked
    assert agents("node-2") == [other]
    assert Path(f"/proc/{begun}/comm").read_text() == Path(f"/proc/{other}/comm").read_text()
    assert "nodeagent.lab.supervisor" in Path(f"/proc/{shared.supervisor()}/cmdline").read_text().split("\0")


def test_exec_is_in_the_namespace_with_the_exit_code_of_the_command(shared: Any) -> None:
    assert "192.168.0.12" in shared.do("exec", "node-2", "--", "ip", "-o", "address", "show", "dev", "eth0")
    assert shared.run("exec", "echo-1-1", "--", "sh", "-c", "exit 7").status == 7
    assert shared.run("exec", "client", "--", "sh", "-c", "kill -9 $$").status == 128 + 9
    assert shared.run("exec", "client", "--", "no-such-program").status == 127
    assert shared.run("exec", "client", "--", "/etc").status == 126


def test_exec_of_an_unknown_member_names_those_there_are(shared: Any) -> None:
    outcome = shared.run("exec", "node-9", "--", "true")

    assert outcome.status == 1
    assert outcome.errors.startswith(
        "nodeagent: there is no 'node-9' in the lab; there are caller-1, caller-2, client,"
    )


def test_nodeagent_show_works_on_a_node(shared: Any) -> None:
    rows = json.loads(shared.do("exec", "node-1", "--", "nodeagent", "show", "-o", "json"))

    dns = {"kube-system/kube-dns:dns", "kube-system/kube-dns:dns-tcp"}
    assert {row["service"] for row in rows} == {
        "default/echo:tcp",
        "default/echo:udp",
        "default/kubernetes:https",
        *dns,
    }
    assert {row["backends"] for row in rows if row["service"] == "default/echo:tcp"} == {4}


@pytest.mark.parametrize("address", ["192.168.0.11", "[2001:db8::c]"])
def test_pods_speak_http_and_are_reached_from_outside(shared: Any, address: str) -> None:
    services = rows(shared.do("status"), "SERVICE")
    port = next(word.split(":")[1].split("/")[0] for word in services[0] if word.startswith("*:"))
    answer = shared.do("exec", "client", "--", "python3", "-c", FETCH, f"http://{address}:{port}/")

    assert answer.startswith("echo-")


def test_a_pod_reaches_the_pods_of_the_other_node_without_translation(shared: Any) -> None:
    answer = shared.do("exec", "echo-1-1", "--", "python3", "-c", FETCH, "http://10.244.2.10:8080/").split()

    assert answer[:2] == ["echo-2-1", "10.244.1.10"]


def test_the_kubeconfig_works_on_this_machine(shared: Any) -> None:
    path = Path(shared.do("kubeconfig").strip())
    api = Api(Access.read(path))

    assert [node["metadata"]["name"] for node in api.call("GET", "/api/v1/nodes")["items"]] == ["node-1", "node-2"]
    assert path.stat().st_mode & 0o077 == 0
    api.close()


def test_the_api_wants_credentials(shared: Any) -> None:
    outcome = shared.run(
        "exec", "client", "--", "python3", "-c",
        "import ssl, urllib.request as u; u.urlopen('https://192.168.0.2:6443/api/v1/nodes',"
        " context=ssl._create_unverified_context(), timeout=5)",
    )  # fmt: skip

    assert outcome.status == 1
    assert "HTTP Error 401" in outcome.errors


def test_nodes_go_on_being_ready(shared: Any, eventually: Any) -> None:
    api = Api(Access.read(shared.directory().kubeconfig))

    def renewed() -> str:
        lease = api.call("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-1")
        return str(lease["spec"]["renewTime"])

    first = renewed()
    eventually(lambda: renewed() > first)
    api.close()


def test_logs_are_those_of_the_agent_and_follow_it(shared: Any) -> None:
    assert " ready: " in shared.do("logs", "node-1")
    assert "serving address=192.168.0.2" in shared.do("logs", "control")
    with shared.start("logs", "-f", "node-1") as process:
        assert process.stdout is not None
        assert any(" ready: " in line for line in iter(process.stdout.readline, ""))
        process.terminate()
        assert process.wait(60) == 130
    outcome = shared.run("logs", "echo-1-1")
    assert outcome.errors == "nodeagent: 'echo-1-1' has no log; there are logs of node-1, node-2, control\n"


def test_a_user_may_create_a_service_of_their_own(shared: Any, eventually: Any) -> None:
    api = Api(Access.read(shared.directory().kubeconfig))
    path = "/api/v1/namespaces/default/services"
    spec = {"selector": {"app": "echo"}, "ports": [{"port": 8000, "targetPort": "tcp"}]}
    address = api.call("POST", path, {"metadata": {"name": "mine"}, "spec": spec})["spec"]["clusterIP"]
    try:
        eventually(lambda: f"{address}:8000/TCP" in shared.do("exec", "node-2", "--", "nodeagent", "show"))
        answer = shared.do("exec", "echo-2-1", "--", "python3", "-c", FETCH, f"http://{address}:8000/")
        assert answer.startswith("echo-")
    finally:
        api.delete(f"{path}/mine")
        api.close()


class Page:
    """The page of a lab, as its script speaks with it."""

    def __init__(self, printed: str) -> None:
        found = re.search(r"http://127\.0\.0\.1:(\d+)/#(\S+)", printed)
        assert found is not None, printed
        self.address = found[0]
        self._port, self._token = int(found[1]), found[2]

    def request(self, method: str, path: str) -> HTTPResponse:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request(method, path, headers={"Authorization": f"Bearer {self._token}"})
        return connection.getresponse()

    def order(self, path: str) -> int:
        return self.request("POST", path).status

    def states(self) -> Generator[Any, None, None]:
        with self.request("GET", "/api/events") as answer:
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])


def test_the_page_shows_the_lab_and_its_orders_cut_a_node_and_mend_it(shared: Any) -> None:
    page = Page(shared.do("status"))

    def reached() -> dict[str, int]:
        return ask(shared.directory(), Connect("node-1", "192.168.0.12", 81, timeout=1.0), Connected).failures

    def seen(states: Iterator[Any], condition: Callable[[Any], bool]) -> Any:
        deadline = time.monotonic() + 60
        for state in states:
            if condition(state):
                return state
            assert time.monotonic() < deadline, state
        raise AssertionError("the page ended")

    with closing(page.states()) as states:
        first = seen(states, lambda state: len(state["nodes"]) == 2)
        assert [(node["name"], node["agent"], node["cut"]) for node in first["nodes"]] == [
            ("node-1", "running", False),
            ("node-2", "running", False),
        ]
        assert reached() == {"refused": 1}, "the control: node-2 is reached, and nobody listens there"
        assert page.order("/api/load/start") == 204
        talking = seen(states, lambda state: any(one["answered"] and one["pods"] for one in state["talks"]))
        assert {one["client"] for one in talking["talks"]} == {"caller-1", "caller-2", "node-1", "node-2", "client"}
        seen(states, lambda state: any(one["client"] == "caller-1" for one in state["tracked"]))

        assert page.order("/api/cut?node=node-2") == 204
        cut = seen(states, lambda state: state["nodes"][1]["cut"])
        assert cut["faults"] == ["link of node-2 cut"]
        assert set(reached()) & {"timeout", "unreachable"}
        assert page.order("/api/cut?node=node-2") == 409
        assert "broken on purpose: link of node-2 cut" in shared.do("status")
        assert shared.run("fault", "cut", "node-2").errors == "nodeagent: link of node-2 cut already\n"
        seen(states, lambda state: any(one["failed"] for one in state["talks"]))

        assert page.order("/api/mend?node=node-2") == 204
        mended = seen(states, lambda state: not state["nodes"][1]["cut"])
        assert mended["faults"] == []
        assert mended["troubles"][-1]["ended"] is not None
        seen(states, lambda _: reached() == {"refused": 1})
        assert page.order("/api/load/stop") == 204
        seen(states, lambda state: not state["loading"] and not state["talks"])

"""`nodeagent diff` against a kernel that somebody changed, and `nodeagent plan` without any privilege."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.netns.commands.conftest import EXAMPLES, NODEAGENT, Node

pytestmark = pytest.mark.slow

SETTINGS = {"NODEAGENT_TRAFFIC_CLUSTER_CIDRS": "10.244.0.0/16,fd00:244::/32"}
SOURCE = ("--manifests", str(EXAMPLES), "--node-name", "node-a")
FRONTEND = "10.96.0.10 . tcp . 80"


def diff(node: Node, exit_code: int) -> dict[str, Any]:
    done = node.nodeagent("diff", *SOURCE, "-o", "json", environment=SETTINGS)
    assert (done.returncode, done.stderr) == (exit_code, "")
    document: dict[str, Any] = json.loads(done.stdout)
    assert list(document) == [
        "verdict",
        "same",
        "origin",
        "tables",
        "interface",
        "elements",
        "addresses",
    ]
    return document


def test_the_options_of_a_run_are_those_of_the_comparison(node: Node) -> None:
    node.program_examples("--table-ownership=plain")
    cidrs = "10.244.0.0/16,fd00:244::/32"
    assert node.nodeagent("diff", *SOURCE).returncode == 1
    assert node.nodeagent("diff", *SOURCE, "--cluster-cidr", cidrs).stdout.startswith("same: ")


def test_diff_finds_no_difference_after_a_pass(node: Node) -> None:
    node.program_examples("--table-ownership=plain")
    found = diff(node, 0)
    assert found["verdict"].startswith("same: ")
    assert found["tables"] == {"IPv4": "right", "IPv6": "right"}
    assert found["interface"] == {"nodeagent0": "right"}
    assert found["addresses"] == []
    text = node.nodeagent("diff", *SOURCE, environment=SETTINGS).stdout.splitlines()
    assert text[0] == found["verdict"]


@pytest.mark.parametrize(
    ("change", "wanted", "found"),
    [
        pytest.param(f"delete element ip nodeagent frontends {{ {FRONTEND} }}", "0:3", None, id="missing"),
        pytest.param(
            f"delete element ip nodeagent frontends {{ {FRONTEND} }}; "
            f'add element ip nodeagent frontends {{ {FRONTEND} counter comment "default/web:http" : 0:2 }}',
            "0:3",
            "0:2",
            id="different",
        ),
        pytest.param(
            'add element ip nodeagent frontends { 10.96.0.99 . tcp . 80 counter comment "a/b" : 0:1 }',
            None,
            "0:1",
            id="too much",
        ),
    ],
)
def test_an_element_that_another_changed_is_reported(
    node: Node, change: str, wanted: str | None, found: str | None
) -> None:
    node.program_examples("--table-ownership=plain")
    node.shell(f"nft -f - <<'END'\n{change.replace('; ', chr(10))}\nEND")
    printed = diff(node, 1)
    assert printed["verdict"] == "different: 1 elements"
    (element,) = printed["elements"]
    assert (element["set"], element["wanted"], element["found"]) == ("frontends", wanted, found)
    assert element["service"] == ("a/b" if wanted is None else "default/web")
    assert element["key"] == ("10.96.0.99 . tcp . 80" if wanted is None else FRONTEND)


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        pytest.param(
            "ip address del 10.96.0.10/32 dev nodeagent0",
            [("10.96.0.10", "address and route over lo", "route over lo", "default/web")],
            id="an address is missing",
        ),
        pytest.param(
            "ip -6 route del local fd00:10:96::20 dev nodeagent0 table local",
            [("fd00:10:96::20", "route", None, "default/shop")],
            id="a local route is missing",
        ),
        pytest.param(
            "ip address add 10.96.0.99/32 dev nodeagent0",
            [("10.96.0.99", None, "address", "")],
            id="another's address",
        ),
        pytest.param(
            "ip address add 192.0.2.7/24 dev nodeagent0",
            [("192.0.2.7/24", None, "address", "")],
            id="an address with a prefix",
        ),
        pytest.param(
            "ip -6 route add local fd00:10:96::99 dev nodeagent0 table local proto static",
            [("fd00:10:96::99", None, "route", "")],
            id="another's route",
        ),
        pytest.param(
            "ip route add local 10.96.0.10 dev nodeagent0 table local proto static metric 7",
            [("10.96.0.10", "address and route over lo", "address and route and route over lo", "default/web")],
            id="both at once",
        ),
    ],
)
def test_an_address_that_another_changed_is_reported(
    node: Node, change: str, differing: list[tuple[str, str | None, str | None, str]]
) -> None:
    node.program_examples("--table-ownership=plain")
    assert diff(node, 0)["verdict"].endswith(" addresses")
    node.shell(change)
    printed = diff(node, 1)
    assert printed["verdict"] == "different: 1 addresses"
    assert (printed["elements"], printed["interface"]) == ([], {"nodeagent0": "right"})
    assert [(one["address"], one["wanted"], one["found"], one["service"]) for one in printed["addresses"]] == differing
    text = node.nodeagent("diff", *SOURCE, environment=SETTINGS).stdout.splitlines()
    assert text[0] == printed["verdict"]
    address, wanted, found, _ = differing[0]
    assert text[-1].split("  ")[0] == "nodeagent0"
    assert " ".join(text[-1].split()[1:]) == f"{address} {wanted or '-'} {found or '-'}"

    node.program_examples("--table-ownership=plain")
    assert diff(node, 0)["same"]


@pytest.mark.parametrize(
    ("change", "state", "all_missing"),
    [
        ("ip link del nodeagent0", "is not there", True),
        ("ip link set nodeagent0 down", "is down", False),
        ("ip link set nodeagent0 alias theirs", "lacks the alias nodeagent", False),
        (
            "ip link del nodeagent0; ip link add nodeagent0 type veth peer name other",
            "is not the agent's: it is of kind veth, not dummy or bridge",
            True,
        ),
    ],
    ids=["gone", "down", "another alias", "another's"],
)
def test_an_interface_that_another_changed_is_reported(node: Node, change: str, state: str, all_missing: bool) -> None:
    node.program_examples("--table-ownership=plain")
    node.shell(change)
    printed = diff(node, 1)
    assert printed["verdict"].startswith(f"different: interface nodeagent0 {state}; ")
    assert (printed["elements"], printed["interface"]) == ([], {"nodeagent0": state})
    missing = {one["address"] for one in printed["addresses"] if one["wanted"] is not None and one["found"] is None}
    if all_missing:
        assert missing == {"10.96.0.10", "10.96.0.20", "10.96.0.30", "fd00:10:96::20"}


def test_an_interface_that_nobody_wants_is_not_compared(node: Node) -> None:
    node.program_examples("--table-ownership=plain")
    node.shell("ip link del nodeagent0")
    done = node.nodeagent(
        "diff", *SOURCE, "-o", "json", environment={**SETTINGS, "NODEAGENT_DATAPLANE_SERVICE_INTERFACE": "false"}
    )
    document = json.loads(done.stdout)
    assert (done.returncode, document["interface"], document["addresses"]) == (0, {}, [])


def test_a_missing_table_is_reported(node: Node) -> None:
    found = diff(node, 1)
    assert found["verdict"].startswith("different: table IPv4 is not there, table IPv6 is not there; ")
    assert all(element["found"] is None for element in found["elements"])


def test_a_plan_needs_no_privileges_and_changes_nothing(node: Node, tmp_path: Path) -> None:
    node.program_examples()
    before = node.shell("nft list ruleset")
    new = tmp_path / "new"
    shutil.copytree(EXAMPLES, new)
    changed = 0
    for file in new.iterdir():
        text = file.read_text()
        changed += text.count("10.244.1.11")
        file.write_text(text.replace("10.244.1.11", "10.244.1.99"))
    assert changed == 1
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o755)
    arguments = ("plan", "--manifests", str(new), "--against", str(EXAMPLES), "--node-name", "node-a")
    done = node.run("setpriv", "--bounding-set=-all", "--inh-caps=-all", *NODEAGENT, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "0 Services come, 0 go, 1 change; 1 elements come, 1 go, 1 change"
    assert lines[2:4] == [
        "~ default/web",
        "    ~ ClusterIP IPv4 10.96.0.10:80/TCP: endpoints +10.244.1.99:8080 -10.244.1.11:8080",
    ]
    assert node.shell("nft list ruleset") == before

    same = node.nodeagent("plan", "--manifests", str(EXAMPLES), "--against", str(EXAMPLES), "--node-name", "node-a")
    assert same.stdout.startswith("nothing would change\n")


def test_a_plan_must_know_of_what(node: Node) -> None:
    done = node.nodeagent("plan")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nodeagent: plan needs --manifests DIRECTORY: what is to be in effect\n"


def test_without_an_agent_a_plan_says_what_it_can_be_compared_with(node: Node, tmp_path: Path) -> None:
    done = node.nodeagent("plan", "--manifests", str(EXAMPLES), "--socket", str(tmp_path / "nobody.sock"))
    assert done.returncode == 1
    assert done.stderr.endswith(
        "start it, or compare with --against DIRECTORY, an empty one for a node without Services\n"
    )

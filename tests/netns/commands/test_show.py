"""`nodeagent show` on a programmed node: on narrow terminals, into pipes and full disks, and while the rules change."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
import yaml

from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.conftest import EXAMPLES, NODEAGENT, Node, one_node

FULL = "nodeagent: standard output: No space left on device\n"


@pytest.fixture(scope="module")
def programmed(network_namespaces: None, warm_launcher: WarmLauncher) -> Iterator[Node]:
    """A node with the services of docs/examples."""
    with one_node(warm_launcher) as node:
        node.program_examples()
        yield node


def on_terminal(node: Node, columns: int, *arguments: str) -> list[str]:
    command = " ".join(["stty", "cols", str(columns), ";", *map(quoted, NODEAGENT), *arguments])
    return node.run(
        "script", "-qec", command, "/dev/null", environment={"TERM": "dumb", "COLUMNS": ""}
    ).stdout.splitlines()


def quoted(word: str) -> str:
    return f"'{word.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'"


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
@pytest.mark.parametrize("what", ["services", "frontends", "backends"])
def test_a_narrow_terminal_cuts_no_value(programmed: Node, what: str, columns: int) -> None:
    whole = {word.rstrip(",") for word in programmed.nodeagent("show", what).stdout.split()}

    lines = [
        line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in on_terminal(programmed, columns, "show", what)
    ]
    notes = [line for line in lines if line.startswith("nodeagent: note: no room for the column")]
    table = [line for line in lines if line not in notes]

    assert {word.rstrip(",") for line in table for word in line.split()} <= whole
    assert len(notes) == (table[0].split() != programmed.nodeagent("show", what).stdout.splitlines()[0].split())
    if max(map(len, table)) > columns:
        assert len(table[0].split()) <= 3, "columns that may be left out are still there"


def test_every_row_says_the_family(programmed: Node) -> None:
    for what, place in (("frontends", "frontend"), ("backends", "frontend")):
        rows = json.loads(programmed.nodeagent("show", what, "-o", "json").stdout)
        assert {row["family"] for row in rows if row[place] == "*:30443/TCP"} == {"IPv4", "IPv6"}
        lines = [line.split() for line in programmed.nodeagent("show", what).stdout.splitlines()]
        assert lines[0][1] == "FAMILY"
        assert {line[1] for line in lines if "*:30443/TCP" in line} == {"IPv4", "IPv6"}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("check",), {"kernel", "nft", "IPv4 table"}),
        (("trace", "10.244.1.11", "10.96.0.10:80"), {"default/web:http"}),
        (("dns", "web", "--manifests", str(EXAMPLES)), {"web.default.svc.cluster.local."}),
        (("diff", "--manifests", str(EXAMPLES), "--node-name", "node-a"), {"10.244.0.0-10.244.255.255"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_yaml_says_what_json_says_and_names_stand_alone(
    programmed: Node, arguments: tuple[str, ...], names: set[str]
) -> None:
    def outputs() -> dict[str, str]:
        return {form: programmed.nodeagent(*arguments, "-o", form).stdout for form in ("json", "yaml", "name")}

    printed, again = outputs(), outputs()
    ends = time.monotonic() + 60
    while (
        printed != again and time.monotonic() < ends
    ):  # `check` also tells what others on the machine do, which changes
        printed, again = again, outputs()
    assert printed["json"].startswith("{")
    assert yaml.safe_load(printed["yaml"]) == json.loads(printed["json"])
    assert list(yaml.safe_load(printed["yaml"])) == list(json.loads(printed["json"]))
    lines = printed["name"].splitlines()
    assert names <= set(lines)


@pytest.mark.parametrize(
    "arguments",
    [("show",), ("show", "frontends", "-o", "json"), ("config", "show"), ("--help",)],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("redirection", "line"),
    [
        pytest.param("> /dev/full", FULL, id="full"),
        pytest.param(">&-", "nodeagent: standard output: is closed\n", id="closed"),
        pytest.param("> >(exec true)", "", id="reader gone"),
    ],
)
def test_a_failed_output_is_one_line_and_a_closed_pipe_is_silent(
    programmed: Node, arguments: tuple[str, ...], redirection: str, line: str
) -> None:
    wait = "sleep 0.5; " if ">(" in redirection else ""
    done = programmed.run("bash", "-c", f'{{ {wait}"$@"; }} {redirection}', "bash", *NODEAGENT, *arguments)
    assert (done.stderr, done.returncode) == (line, 1)


def nft(node: Node, script: str) -> None:
    subprocess.run(
        ["ip", "netns", "exec", node.name, "nft", "-f", "-"], input=script, text=True, check=True, timeout=60
    )


def test_interrupted_dumps_do_not_disturb_show(programmed: Node) -> None:
    """Somebody else changes rules without a pause: single dumps are interrupted, `show` is not."""
    expected = programmed.nodeagent("show").stdout
    chains = "".join(f"add chain ip others {'long-name-' * 10}{number}\n" for number in range(3000))
    nft(programmed, f"add table ip others\nadd chain ip others one\n{chains}")
    done = threading.Event()

    def churn() -> None:
        script = "".join("add rule ip others one counter\nflush chain ip others one\n" for _ in range(20))
        while not done.is_set():
            nft(programmed, script)

    other = threading.Thread(target=churn)
    other.start()
    try:
        for _ in range(10):
            shown = programmed.nodeagent("show")
            assert (shown.stdout, shown.stderr) == (expected, "")
    finally:
        done.set()
        other.join()


def test_without_a_table_it_says_so(node: Node) -> None:
    done = node.nodeagent("show")
    assert done.returncode == 1
    assert done.stderr.startswith("nodeagent: nothing is programmed here: ")


def test_the_environment_of_these_tests_has_a_terminal_program() -> None:
    assert os.access("/usr/bin/script", os.X_OK)

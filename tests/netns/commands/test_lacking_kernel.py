"""Every command on a kernel that lacks something, or without permission: it ends with one line, and never with a traceback."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent.cli.main import COMMANDS
from tests.harness.lacking_start import LACKS
from tests.harness.warm_start import WarmLauncher
from tests.netns.commands.conftest import EXAMPLES, Done, Node, one_node

NO_NF_TABLES = "nf_tables: this kernel does not have it (CONFIG_NF_TABLES): try modprobe nf_tables"
LOGGED = re.compile(r"\d\d:\d\d:\d\d\.\d{3} (info|warning) ")

pytestmark = pytest.mark.calm_kernel("what is stated is the one line of a lasting refusal")

OBJECTS = ("--manifests", str(EXAMPLES), "--node-name=node-a", "--cluster-cidr=10.244.0.0/16,fd00:244::/32")
NEEDS_NF_TABLES: dict[str, tuple[str, ...]] = {
    "run": ("run", "--once", *OBJECTS),
    "show": ("show",),
    "trace": ("trace", "10.244.1.5", "10.96.0.10:80"),
    "diff": ("diff", *OBJECTS),
    "top": ("top", "--once", "--every=0.1"),
    "replay": ("replay", "RECORDED"),
    "check": ("check",),
    "cleanup of kube-proxy, dry": ("cleanup", "--of=kube-proxy", "--dry-run"),
    "cleanup of kube-proxy": ("cleanup", "--of=kube-proxy"),
    "cleanup": ("cleanup",),
}
"""Commands that end with code 3 without it; the last one removes what the others read, where it can."""
DOES_WITHOUT: dict[str, tuple[str, ...]] = {
    "explain": ("explain", "web", "--no-probe", *OBJECTS),
    "explain all": ("explain", *OBJECTS),
    "bundle": ("bundle", "NEW", *OBJECTS),
    "run init-only": ("run", "--init-only", *OBJECTS),
    "config": ("config", "check", *OBJECTS),
    "problems": ("problems", *OBJECTS),
    "dns": ("dns", "web", "--manifests", str(EXAMPLES)),
}
ASK_OTHERS = {"plan", "journal", "log-level", "version", "help", "takeover", "apiserver", "connectivity"}
"""Commands that read and write nothing of this kernel's netfilter."""
MAKE_NODES = {"demo", "lab"}
"""Their agents are processes of `run`."""


def test_every_command_has_a_row() -> None:
    rows = {words[0] for words in (*NEEDS_NF_TABLES.values(), *DOES_WITHOUT.values())}
    assert rows | ASK_OTHERS | MAKE_NODES == set(COMMANDS)


@pytest.fixture(scope="module")
def programmed(network_namespaces: None, warm_launcher: WarmLauncher) -> Iterator[Node]:
    """A node on which an agent has programmed the examples."""
    with one_node(warm_launcher) as node:
        node.program_examples()
        yield node


@pytest.fixture(scope="module")
def recorded(programmed: Node, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A bundle of that node."""
    place = str(tmp_path_factory.mktemp("recorded") / "bundle.tar.gz")
    done = programmed.nodeagent("bundle", place, *OBJECTS)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def carry_out(
    programmed: Node, warm_launcher: WarmLauncher, recorded: str, tmp_path: Path
) -> Iterator[Callable[[str, tuple[str, ...]], Done]]:
    """carry_out(lack, words): a command whose kernel lacks that."""

    def carried_out(lack: str, words: tuple[str, ...]) -> Done:
        warm_launcher.lack = lack
        places = {"NEW": str(tmp_path / "bundle.tar.gz"), "RECORDED": recorded}
        return programmed.nodeagent(*(places.get(word, word) for word in words))

    yield carried_out
    warm_launcher.lack = ""


def said(done: Done) -> list[str]:
    """What is on standard error besides the log."""
    return [line for line in done.stderr.splitlines() if not LOGGED.match(line)]


@pytest.mark.parametrize("command", NEEDS_NF_TABLES)
@pytest.mark.parametrize(
    ("lack", "words"),
    [
        ("netfilter", NO_NF_TABLES),
        ("nf_tables", NO_NF_TABLES),
        ("permission", "nf_tables: not permitted: run as root or with CAP_NET_ADMIN"),
    ],
)
def test_commands_that_need_nf_tables_report_its_absence(
    carry_out: Callable[[str, tuple[str, ...]], Done], lack: str, words: str, command: str
) -> None:
    done = carry_out(lack, NEEDS_NF_TABLES[command])
    assert said(done) == [f"nodeagent: {words}"]
    assert done.returncode == 3


@pytest.mark.parametrize("command", DOES_WITHOUT)
@pytest.mark.parametrize("lack", LACKS)
def test_commands_that_do_not_need_nf_tables_print_at_most_a_note(
    carry_out: Callable[[str, tuple[str, ...]], Done], lack: str, command: str
) -> None:
    done = carry_out(lack, DOES_WITHOUT[command])
    assert done.returncode in (0, 1)
    assert all(line.startswith("nodeagent: note: the kernel was not read: ") for line in said(done))
    assert len(said(done)) <= 1


@pytest.mark.parametrize("command", NEEDS_NF_TABLES)
def test_without_conntrack_every_command_works(carry_out: Callable[[str, tuple[str, ...]], Done], command: str) -> None:
    """An agent that begins then ends no UDP flows, which is in its log."""
    done = carry_out("conntrack", NEEDS_NF_TABLES[command])
    assert said(done) == []
    assert done.returncode == (1 if command == "trace" else 0), done.stdout

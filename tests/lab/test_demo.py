"""The demo tells its story and ends cleanly whatever happens."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.lab.namespaces import our_namespaces

ROOT = Path(__file__).parents[2]


def demo(*arguments: str, path: str = "") -> "subprocess.Popen[str]":
    environment = os.environ | {"COLUMNS": "160", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "nodeagent.lab.demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment | ({"PATH": path} if path else {}),
    )


def directories() -> set[Path]:
    return {path for path in Path("/tmp").glob("nodeagent-demo-*") if any(path.iterdir())}


def test_the_demo_shows_every_way_and_loses_no_connection() -> None:
    before = set(our_namespaces())
    with demo() as process:
        output, errors = process.communicate(timeout=120)

    assert (process.returncode, errors) == (0, "")
    assert "service/shop created" in output
    assert "12 endpoints of default/shop are programmed on every node" in output
    counted = [line.split() for line in output.splitlines() if "█" in line]
    assert [name for name, *_ in counted] == [f"echo-{node}-{pod}" for node in (1, 2, 3) for pod in (1, 2)]
    assert sum(int(count) for _, count, _ in counted) == 16 * 60
    assert "960 connections, none failed" in output
    for who in ("a pod", "a node", "outside"):
        assert f"{who} (" in output
    answered = [line.split()[:3] for line in output.splitlines() if "connections made meanwhile were answered" in line]
    assert len(answered) == 2
    assert all(answered == attempts for answered, _, attempts in answered)
    assert "replaced all 6 pods" in output
    assert "connections opened before are still answered" in output
    assert "removed everything" in output
    assert not {name for name in set(our_namespaces()) - before if "-echo-" in name}


def test_without_kubectl_the_demo_says_so_and_uses_the_api(tmp_path: Path) -> None:
    for program in ("ip", "nft", "setpriv", "openssl"):
        found = shutil.which(program)
        assert found is not None
        (tmp_path / program).symlink_to(found)
    with demo(path=str(tmp_path)) as process:
        assert process.stdout is not None
        told = next(line for line in process.stdout if "kubectl" in line)
        assert "no kubectl on this machine: created through the API instead" in told
        assert any("service/shop created" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_an_agent_that_does_not_start_is_shown_with_its_words() -> None:
    with demo("--agent-option=--no-such") as process:
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert errors.startswith("demo: ")
    assert "No such option '--no-such'" in errors
    assert errors.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        pytest.param(signal.SIGINT, "network namespaces", id="Ctrl-C while it is built"),
        pytest.param(signal.SIGTERM, "registered", id="terminated while it is built"),
        pytest.param(signal.SIGINT, "kubectl", id="Ctrl-C while kubectl works"),
        pytest.param(signal.SIGHUP, "nodeagent show", id="hung up while the pods are replaced"),
    ],
)
def test_an_interrupted_demo_leaves_nothing(number: signal.Signals, moment: str) -> None:
    before = set(our_namespaces())
    with demo() as process:
        assert process.stdout is not None
        for line in process.stdout:
            if moment in line:
                process.send_signal(number)
                break
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    assert "interrupted, everything removed" in errors
    assert not {name for name in set(our_namespaces()) - before if "-echo-" in name}
    assert not directories()


def test_without_root_the_demo_says_so_in_one_line() -> None:
    program = "import os; from nodeagent.lab.demo import main; os.setuid(65534); raise SystemExit(main([]))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert result.returncode == 1
    assert result.stderr == "demo: it makes network namespaces: run it as root\n"

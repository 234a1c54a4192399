"""The demo tells its story with an agent of few lines, and ends cleanly whatever happens."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.lab.namespaces import our_namespaces

ROOT = Path(__file__).parents[2]
STAND_IN = shlex.join([sys.executable, str(Path(__file__).with_name("stand_in_agent.py")), "{manifests}"])

pytestmark = pytest.mark.usefixtures("network_namespaces")


def demo(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nodeagent.lab.demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "160", "PYTHONUNBUFFERED": "1"},
    )


def leftovers(creator: int) -> list[str]:
    return [name for name in our_namespaces() if name.startswith(f"nodeagent-lab-{creator}-")]


def test_the_demo_shows_the_spread_and_a_pod_leaving() -> None:
    with demo("--agent", STAND_IN, "--show", "nft list tables") as process:
        output, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (0, "")
    counted = [line.split() for line in output.splitlines() if "█" in line]
    assert [name for name, *_ in counted] == ["web-0", "web-1", "web-2", "web-0", "web-1", "web-0", "web-1"]
    assert sum(int(count) for _, count, _ in counted) == 900
    assert "table inet stand-in" in output
    assert "took web-2 out of the Service" in output
    assert "namespaces left: 0" in output
    assert not leftovers(process.pid)


def test_an_agent_that_does_not_start_is_shown_with_its_words() -> None:
    with demo("--agent", "sh -c 'echo no such kernel; exit 2'") as process:
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert errors.startswith("demo: ")
    assert "no such kernel" in errors
    assert "ended with 2 before an answer from the service" in errors
    assert not leftovers(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["built", "started the agent"])
def test_an_interrupted_demo_leaves_nothing(number: signal.Signals, moment: str) -> None:
    with demo("--agent", STAND_IN, "--show", "") as process:
        assert process.stdout
        for line in process.stdout:
            if moment in line:
                process.send_signal(number)
                break
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 128 + number
    assert "interrupted, everything removed" in errors
    assert not leftovers(process.pid)


def test_without_root_the_demo_says_so_in_one_line() -> None:
    program = "import os; from nodeagent.lab.demo import main; os.setuid(65534); raise SystemExit(main([]))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)

    assert result.returncode == 1
    assert result.stderr == "demo: it makes network namespaces: run it as root\n"

"""The agent takes short turns: in a process of its own, because they are the process's."""

import subprocess
import sys

RUN = """
import sys
from nodeagent.cli.main import main
try:
    main(["run", "--once", "--node-name", "node-a", "--manifests", "/no/such/directory"])
except SystemExit as end:
    print(end.code, sys.getswitchinterval())
"""


def test_no_thread_of_an_agent_keeps_the_loop_waiting_for_long() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    code, seconds = done.stdout.split()
    assert int(code) != 0
    assert float(seconds) == 0.0005

"""What the DNS process may do, and others to it."""

import asyncio
import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodeagent.names.feed.feed_messages import PROCESS_USER
from nodeagent.names.server.privileges import (
    LANDLOCK_CREATE_RULESET,
    LANDLOCK_CREATE_RULESET_VERSION,
    NOBODY,
)
from tests.contract.names.test_hanging_process import ADDRESS
from tests.contract.names.test_process import Node, run

LANDLOCK = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")
def test_no_process_of_another_user_may_stop_or_trace_it(tmp_path: Path) -> None:
    """Not even `nobody`, and its files are root's to look at."""

    async def scene(node: Node) -> None:
        await node.until_said(ADDRESS)
        pid = node.supervisor.pid
        program = f"import os; os.setuid(65534); os.kill({pid}, 19)"
        process = await asyncio.create_subprocess_exec("python3", "-c", program, stderr=asyncio.subprocess.PIPE)
        assert b"PermissionError" in (await process.communicate())[1]
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0
        status = await asyncio.to_thread(Path(f"/proc/{pid}/status").read_text)
        assert f"\nUid:\t{PROCESS_USER}\t" in status

    run(scene, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts it as another user")
@pytest.mark.parametrize(("users", "expected"), [("65536", NOBODY), ("2147483647", PROCESS_USER)])
def test_who_it_becomes_in_a_user_namespace(users: str, expected: int) -> None:
    """One of a container may have 65,536 users."""
    program = f"""
import ctypes, os
from nodeagent.names.server.privileges import drop_privileges
assert ctypes.CDLL(None).unshare(0x10000000) == 0
print("there", flush=True)
input()
drop_privileges({PROCESS_USER})
print(os.getresuid() + os.getresgid())
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{process.pid}/{kind}").write_text(f"0 0 {users}\n")
        process.stdin.write("\n")
        process.stdin.close()
        assert process.stdout.readline() == f"{(expected,) * 6}\n"


@pytest.mark.parametrize(
    ("forbidden", "since"),
    [
        ("os.kill(os.getppid(), 0)", 6),
        ("open(sys.argv[1] + '/new', 'w')", 1),
        ("open(sys.argv[1] + '/there', 'r+')", 1),
        ("os.truncate(sys.argv[1] + '/there', 0)", 3),
        ("os.unlink(sys.argv[1] + '/there')", 1),
        ("os.execv('/bin/true', ['true'])", 1),
    ],
)
def test_the_process_cannot_touch_processes_and_files_of_its_own_user(
    tmp_path: Path, forbidden: str, since: int
) -> None:
    """Under systemd it has the agent's user. The control is the same before it gives its rights away."""
    if since > LANDLOCK:
        pytest.skip(f"Landlock {LANDLOCK} of this kernel cannot forbid it")
    (tmp_path / "there").write_text("something")
    tmp_path.chmod(0o700)
    program = f"""
import os, sys
from nodeagent.names.server.privileges import drop_privileges
if sys.argv[2] == "confined":
    drop_privileges(os.geteuid())
open(sys.argv[1] + "/there").close()
try:
    {forbidden}
except PermissionError:
    print("refused")
"""
    for confined, expected in (("confined", "refused\n"), ("free", "")):
        command = [sys.executable, "-c", program, str(tmp_path), confined]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == expected

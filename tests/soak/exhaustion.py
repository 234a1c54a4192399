"""How much a process has of a resource, and the limit of what it gets."""

import re
import subprocess
from pathlib import Path

from tests.soak.figures import PAGE, entries


def limit(pid: int, *arguments: str) -> str:
    """Returns what prlimit(1) prints. It runs as the owner of the process: even root must not change the limits of others' where
    CAP_SYS_RESOURCE is missing. Raises OSError if that fails, or the process has ended."""
    found = re.findall(r"^[UG]id:\t(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    owner = [f"--reuid={found[0]}", f"--regid={found[1]}", "--clear-groups"]
    done = subprocess.run(
        ["setpriv", *owner, "prlimit", f"--pid={pid}", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(done.stderr)
    return done.stdout.strip()


def descriptors(pid: int) -> int:
    """How many a process has. Raises OSError if it has ended."""
    return entries(pid, "fd")


def address_space(pid: int) -> int:
    """Bytes of a process. Raises OSError if it has ended."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * PAGE

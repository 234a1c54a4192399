"""What a run was measured on."""

import platform
import re
from pathlib import Path


def machine() -> str:
    """Returns what it was measured on."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cores = len(re.findall(r"^processor", Path("/proc/cpuinfo").read_text(), re.MULTILINE))
    memory = int(re.findall(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[0]) >> 20
    return f"{cores} cores of {model[1] if model else platform.machine()}, {memory} GB, Linux {platform.release()}"

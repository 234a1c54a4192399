"""A node that is a virtual machine with a stock Debian kernel; the tests look at what it reported."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .emulator import run_in_guest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
IMAGES = ROOT / ".tools" / "boot" / "vm"
GUEST_SECONDS = 480.0
JOB = """\
for module in nf_tables nft_chain_nat nft_fib_ipv4 nft_fib_ipv6 nft_masq nft_numgen nft_reject_ipv4 veth; do
    modprobe $module
done &
pip install --quiet --no-index --no-deps --no-compile ./*.whl
wait
python guest_story.py out/facts.json
"""
"""Modules are loaded meanwhile only to save time; the kernel loads by itself what is missing."""


@dataclass(frozen=True)
class Report:
    """What happened in the machine: see guest_story.py."""

    release: str
    facts: dict[str, Any]

    @property
    def log(self) -> str:
        """What the agent printed when it was started first."""
        return "\n".join(self.facts["log"])


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, and what to do with it."""
    directory = tmp_path_factory.mktemp("job")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(directory), str(ROOT)], check=True)
    shutil.copy(HERE / "guest_story.py", directory)
    (directory / "job.sh").write_text(f"set -e\n{JOB}")
    return directory


@pytest.fixture(
    scope="module", params=[pytest.param(("bookworm", "6.1."), id="6.1"), pytest.param(("trixie", "6.12."), id="6.12")]
)
def report(request: pytest.FixtureRequest, job: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The story as a Debian release's kernel has it. `make test-boot` builds the images."""
    debian, release = request.param
    out = tmp_path_factory.mktemp(debian)
    run_in_guest(IMAGES / "root.img", IMAGES / debian, job, out, seconds=GUEST_SECONDS)
    return Report(release, json.loads((out / "facts.json").read_text()))

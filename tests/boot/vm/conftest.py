"""A node that is a virtual machine with a stock Debian kernel; the tests look at what it reported."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .emulator import run_in_guest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
HARNESS = Path("tests", "harness")
STORIES = Path("tests", "boot", "vm")
IMAGES = ROOT / ".tools" / "boot" / "vm"
GUEST_SECONDS = 1500.0
QUIETLY = ("--quiet", "--no-deps")
WITHOUT_CACHES = shutil.ignore_patterns("__pycache__")
WITHOUT_BOOT = shutil.ignore_patterns("__pycache__", "boot")
BEGIN = "set -e\nexport PYTHONPATH=/job PATH=/job/bin:$PATH\n"
NEWER_NFT = ROOT / ".tools/nft-1.1"
NFT_OF_JOB = """#!/bin/sh
D=/job/nft-1.1/usr/lib/x86_64-linux-gnu
exec $D/ld-linux-x86-64.so.2 --library-path $D /job/nft-1.1/usr/sbin/nft "$@"
"""
"""Debian 13 has nft 1.1.3, and the disk that both machines share has Debian 12's 1.0.6. That one asks for a conversion of the one byte of
`meta l4proto` in a key with ranges (byteorder … 2, 1), which newer kernels refuse (seen on 6.12.117)."""
TESTS = tuple(
    f"tests/contract/driver/test_{what}_in_kernel.py" for what in ("drift", "driver", "fetch", "listing", "rejection")
)
"""What holds the agent to nftables. An agent process takes an emulated machine half a minute to start, so the scenes with one
are left to the story."""
OF_FLOWTABLES = "tests/contract/driver/test_flowtable_in_kernel.py"
TOO_BIG = ("1.1", "listing and (bridge or prefix or counters)")
"""A second nft is not there, and one set of options is listed."""
NOT_OWNED = ("owned", "second_agent_learns", "removal_takes_both")
NOT_FETCHED = ("fetched_elements",)
NOT_REFUSED = ("left_out", "right_before", "several_bad_ones")
LEFT_OUT = {
    "bookworm": (*TOO_BIG, *NOT_OWNED, *NOT_FETCHED, *NOT_REFUSED),
    "trixie": (*TOO_BIG, *NOT_FETCHED),
}
"""For pytest's -k. Neither kernel tells how many elements a set has, so none is fetched by key. Linux 6.1 cannot own tables, and
takes ranges that overlap, which these tests have refused."""
KERNELS = {"bookworm": "6.1.", "trixie": "6.12."}
"""Release of Debian → how the release of its kernel begins."""
RELEASES = [
    pytest.param((debian, flowtable), id=f"{kernel.rstrip('.')}{', offloading' if flowtable else ''}")
    for debian, kernel in KERNELS.items()
    for flowtable in (False, True)
]
"""Each kernel with the option `dataplane.flowtable` off and on."""
PACE = 4
"""What is timed in these tests may take so many times as long."""


@dataclass(frozen=True)
class Report:
    """What happened in the machine: see guest_story.py and guest_offload.py. flowtable: the option `dataplane.flowtable` was on."""

    release: str
    facts: dict[str, Any]
    flowtable: bool

    @property
    def log(self) -> str:
        """What the agent printed when it was started first."""
        return "\n".join(self.facts["log"])


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what the project's wheel installs, and with the harness, all compiled: what takes seconds out here takes
    an emulated machine a minute."""
    wheels, directory = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("program")
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", *QUIETLY, "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT)], check=True)
    (wheel,) = wheels.glob("*.whl")
    install = [*pip, "install", *QUIETLY, "--no-index", "--no-compile", "--target", str(directory), str(wheel)]
    subprocess.run(install, check=True)
    shutil.copytree(ROOT / HARNESS, directory / HARNESS, ignore=WITHOUT_CACHES)
    compileall = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compileall, "-s", str(directory), "-p", "/job", str(directory)], check=True)
    return directory


@pytest.fixture(scope="session", params=RELEASES)
def report(request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The story as the kernel of one release of Debian has it. `make test-boot` builds the images."""
    debian, flowtable = request.param
    return tell("guest_story", debian, program, tmp_path_factory, flowtable=flowtable)


@pytest.fixture(
    scope="session", params=[pytest.param(debian, id=kernel.rstrip(".")) for debian, kernel in KERNELS.items()]
)
def offloading(request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What happened to offloaded connections, on the kernel of one release of Debian."""
    return tell("guest_offload", request.param, program, tmp_path_factory, flowtable=True)


def add_nft(debian: str, job: Path) -> None:
    """Puts the nft of Debian 13 into a job for its kernel."""
    if debian == "trixie":
        shutil.copytree(NEWER_NFT / "usr", job / "nft-1.1/usr", symlinks=True)
        program = job / "bin/nft"
        program.parent.mkdir(exist_ok=True)
        program.write_text(NFT_OF_JOB)
        program.chmod(0o755)


def tell(story: str, debian: str, program: Path, paths: pytest.TempPathFactory, *, flowtable: bool) -> Report:
    """Runs a module of this directory in a machine, with the option `dataplane.flowtable` on or off."""
    job, out = paths.mktemp(debian), paths.mktemp(debian)
    shutil.copytree(program, job, dirs_exist_ok=True)
    (job / STORIES).mkdir(parents=True)
    for script in HERE.glob("guest_*.py"):
        shutil.copy(script, job / STORIES)
    add_nft(debian, job)
    option = f"export NODEAGENT_DATAPLANE_FLOWTABLE={str(flowtable).lower()}\n"
    (job / "job.sh").write_text(f"{BEGIN}{option}python -m tests.boot.vm.{story} out/facts.json\n")
    run_in_guest(IMAGES / "root.img", IMAGES / debian, job, out, seconds=GUEST_SECONDS)
    return Report(KERNELS[debian], json.loads((out / "facts.json").read_text()), flowtable=flowtable)


@dataclass(frozen=True)
class Outcomes:
    """What became of this project's tests on that kernel: their names by outcome, and what pytest printed of failures."""

    passed: tuple[str, ...]
    failed: dict[str, str]
    skipped: tuple[str, ...]


@pytest.fixture(scope="session", params=RELEASES)
def outcomes(request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """TESTS, run in a machine of one release of Debian."""
    debian, flowtable = request.param
    return run_tests(
        debian, program, tmp_path_factory.mktemp(debian), tmp_path_factory.mktemp(debian), flowtable=flowtable
    )


def run_tests(debian: str, program: Path, job: Path, out: Path, *, flowtable: bool = False) -> Outcomes:
    """TESTS without LEFT_OUT in a machine; `job` and `out` are empty directories. flowtable: with tables that offload connections."""
    shutil.copytree(program, job, dirs_exist_ok=True)
    shutil.copy(ROOT / "pyproject.toml", job)
    shutil.copytree(ROOT / "tests", job / "tests", ignore=WITHOUT_BOOT, dirs_exist_ok=True)
    add_nft(debian, job)
    left_out = " and ".join(f"not ({words})" for words in LEFT_OUT[debian])
    tests = (*TESTS, OF_FLOWTABLES) if flowtable else TESTS
    options = "-m kernel -v --color=no -o timeout=300 -o faulthandler_timeout=0 --junitxml=out/tests.xml"
    command = f"FLOWTABLE={int(flowtable)} PACE={PACE} python -m pytest {options} -k '{left_out}' {' '.join(tests)} || test $? = 1"
    (job / "job.sh").write_text(f"{BEGIN}{command}\n")
    run_in_guest(IMAGES / "root.img", IMAGES / debian, job, out, seconds=GUEST_SECONDS)
    return read_outcomes(out / "tests.xml")


def read_outcomes(path: Path) -> Outcomes:
    """Of a file that ``pytest --junitxml`` wrote."""
    passed, skipped, failed = [], [], {}
    for case in ET.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if problems := [*case.iter("failure"), *case.iter("error")]:
            failed[name] = "\n".join(problem.text or "" for problem in problems)
        elif case.find("skipped") is not None:
            skipped.append(name)
        else:
            passed.append(name)
    return Outcomes(tuple(passed), failed, tuple(skipped))

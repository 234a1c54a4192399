"""A node that is a virtual machine with a stock Debian kernel; the tests look at what it reported."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from .emulator import run_in_guest

T = TypeVar("T")
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
HARNESS = Path("tests", "harness")
IMAGES = ROOT / ".tools" / "boot" / "vm"
GUEST_SECONDS = 480.0
TESTS_SECONDS = 1500.0
INSTALL = "pip install --quiet --no-index --no-deps --no-compile ./*.whl"
JOB = f"""\
for module in nf_tables nft_chain_nat nft_fib_ipv4 nft_fib_ipv6 nft_masq nft_numgen nft_reject_ipv4 veth; do
    modprobe $module
done &
{INSTALL}
wait
python guest_story.py out/facts.json
"""
"""Modules are loaded meanwhile only to save time; the kernel loads by itself what is missing."""
TESTS = tuple(
    f"tests/contract/nft/test_{what}_in_kernel.py" for what in ("drift", "driver", "fetch", "listing", "rejection")
)
"""What holds the agent to nftables. An agent process takes an emulated machine half a minute to start, so the scenes with one
are left to the story."""
TOO_BIG = ("1.1", "listing and (bridge or prefix or counters)")
"""A second nft is not there, and one set of options is listed."""
NOT_OWNED = ("owned", "second_agent_is_told", "removal_takes_both")
NOT_FETCHED = ("what_is_fetched",)
NOT_REFUSED = ("left_out", "right_before", "several_bad_ones")
LEFT_OUT = {
    "bookworm": (*TOO_BIG, *NOT_OWNED, *NOT_FETCHED, *NOT_REFUSED),
    "trixie": (*TOO_BIG, *NOT_FETCHED),
}
"""For pytest's -k. Neither kernel tells how many elements a set has, so none is fetched by key. Linux 6.1 cannot own tables, and
takes ranges that overlap, which these tests have refused."""
KERNELS = {"bookworm": "6.1.", "trixie": "6.12."}
"""Release of Debian → how the release of its kernel begins."""
RELEASES = [pytest.param("bookworm", id="6.1"), pytest.param("trixie", id="6.12")]
PACE = 4
"""What is timed in these tests may take so many times as long."""


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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's."""
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    subprocess.run([*build, str(directory), str(ROOT)], check=True)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def reports_by_release(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """The story as the kernel of each release of Debian has it, told at the same time."""
    places = {debian: (tmp_path_factory.mktemp(debian), tmp_path_factory.mktemp(debian)) for debian in KERNELS}

    def tell(debian: str) -> Report:
        job, out = places[debian]
        shutil.copy(wheel, job)
        shutil.copy(HERE / "guest_story.py", job)
        shutil.copytree(ROOT / HARNESS, job / HARNESS, ignore=shutil.ignore_patterns("__pycache__"))
        (job / "job.sh").write_text(f"set -e\n{JOB}")
        run_in_guest(IMAGES / "root.img", IMAGES / debian, job, out, seconds=GUEST_SECONDS)
        return Report(KERNELS[debian], json.loads((out / "facts.json").read_text()))

    return in_machines(tell)


@pytest.fixture(scope="session", params=RELEASES)
def report(request: pytest.FixtureRequest, reports_by_release: dict[str, Report]) -> Report:
    """One of them. `make test-boot` builds the images."""
    return reports_by_release[request.param]


@dataclass(frozen=True)
class Outcomes:
    """What became of this project's tests on that kernel: their names by outcome, and what pytest printed of failures."""

    passed: tuple[str, ...]
    failed: dict[str, str]
    skipped: tuple[str, ...]


@pytest.fixture(scope="session")
def outcomes_by_release(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcomes]:
    """TESTS, run in a machine of each release of Debian."""
    places = {debian: (tmp_path_factory.mktemp(debian), tmp_path_factory.mktemp(debian)) for debian in KERNELS}

    def run(debian: str) -> Outcomes:
        return run_tests(debian, wheel, *places[debian])

    return in_machines(run)


def in_machines(work: Callable[[str], T]) -> dict[str, T]:
    """What `work` returns for each release of Debian. All at the same time: each machine keeps about one processor busy."""
    with ThreadPoolExecutor() as machines:
        return dict(zip(KERNELS, machines.map(work, KERNELS), strict=True))


@pytest.fixture(params=RELEASES)
def outcomes(request: pytest.FixtureRequest, outcomes_by_release: dict[str, Outcomes]) -> Outcomes:
    """Of one of them."""
    return outcomes_by_release[request.param]


def run_tests(debian: str, wheel: Path, job: Path, out: Path) -> Outcomes:
    """TESTS without LEFT_OUT in a machine; `job` and `out` are empty directories."""
    shutil.copy(wheel, job)
    shutil.copy(ROOT / "pyproject.toml", job)
    shutil.copytree(ROOT / "tests", job / "tests", ignore=shutil.ignore_patterns("__pycache__", "boot"))
    left_out = " and ".join(f"not ({words})" for words in LEFT_OUT[debian])
    options = "-m kernel -v --color=no -o timeout=300 -o faulthandler_timeout=0 --junitxml=out/tests.xml"
    command = f"PACE={PACE} python -m pytest {options} -k '{left_out}' {' '.join(TESTS)} || test $? = 1"
    (job / "job.sh").write_text(f"set -e\n{INSTALL}\n{command}\n")
    run_in_guest(IMAGES / "root.img", IMAGES / debian, job, out, seconds=TESTS_SECONDS)
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

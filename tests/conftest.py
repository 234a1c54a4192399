"""How the tests run: in several processes that each take whole files, with default signals for what they start.

Tests with packets need root and network namespaces. A machine without skips them; with CI=true they fail instead.
"""

import gc
import os
import shutil
import signal
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from nodeagent.lab.net.network_namespaces import LabError, create_namespaces, namespace_name, remove_namespace
from tests.harness.bytecode import compile_share, find_constants_by_name
from tests.harness.effort import AT_LENGTH
from tests.harness.processor_times import ProcessorTimes
from tests.harness.warm_start import MODULES, WarmLauncher
from tests.harness.worlds.forks import SeparateForkServer
from tests.harness.worlds.sctp_actor import ACTOR

HERE = Path(__file__).parent
WITH_PACKETS = frozenset({"netns", "e2e", "lab"})
PROGRAMS = ("ip", "nft", "setpriv", "openssl")
SLOW_SHARE = 0.7
"""Of a run: by then each slow file has begun."""
RESTORED = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Python ignores these itself, and restores them in the processes that `subprocess` starts."""

CHEAP_START = {"PYTHONDONTWRITEBYTECODE": "", "SSL_CERT_FILE": os.devnull}
"""For processes of tests: they keep what they compile, and do not read the certificates of the machine's authorities, none of
which signs anything here. The one takes each 0.2 s, the other 0.1 s of processor time."""

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
find_constants_by_name()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the processes that tests start default signals, also when this one ignores some, and a cheap start.

    ``nohup`` ignores SIGHUP, and a shell SIGINT in what it starts in the background. Ignoring is inherited, but a
    handler is not, and one that does nothing is as good for this process.
    """
    if os.environ.get("TIMES"):
        config.pluginmanager.register(ProcessorTimes())
    os.environ |= CHEAP_START
    for number in signal.valid_signals() - RESTORED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """The tests of a file share what they set up, but for laws, which share nothing and take long."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith("tests/laws/") else nodeid.partition("::")[0]

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that a worker died in; it is not given to another one, as xdist by itself would."""
        workload: dict[str, dict[str, bool]] = self.assigned_work.pop(node)
        left = [(unit, test) for unit in workload.values() for test, done in unit.items() if not done]
        if not left:
            return None
        unit, ended = left[0]
        unit[ended] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return ended


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


@cache
def obstacle() -> str:
    """Why this machine cannot run namespaces; empty when it can."""
    if os.geteuid():
        return "not root"
    for program in PROGRAMS:
        if not shutil.which(program):
            return f"no program {program}"
    probe = namespace_name(os.getpid(), "0", "probe")
    try:
        create_namespaces([probe])
    except LabError as error:
        return str(error)
    finally:
        remove_namespace(probe)
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Do not look for garbage while ten thousand tests are made, which all stay. Workers compile together what all import."""
    gc.disable()
    try:
        if of_worker := getattr(session.config, "workerinput", None):
            compile_share(session.config, int(of_worker["workerid"].removeprefix("gw")), of_worker["workercount"])
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    late = [] if AT_LENGTH else [item for item in items if item.get_closest_marker("at_length")]
    config.hook.pytest_deselected(items=late)
    items[:] = [item for item in items if item not in late]
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    place = mixed({item.path for item in items}, slow)
    items.sort(key=lambda item: place[item.path])
    with_packets = {path for path in place if has_packets(path)}
    for item in items:
        if item.path not in with_packets:
            continue
        item.add_marker(pytest.mark.kernel)
        if os.environ.get("CI") != "true" and (reason := obstacle()):
            item.add_marker(pytest.mark.skipif(True, reason=f"no network namespaces here: {reason}"))


def mixed(paths: Iterable[Path], slow: set[Path]) -> dict[Path, float]:
    """Returns for each file a place between 0 and 1, by which files of a kind are spread evenly, and neighbours in a folder apart.

    Tests with packets often wait, all others compute: with many of the ones together no worker would use the processors, and with many
    of the others each would wait for them. Slow files wait for most of their time; they begin early enough that none of them is
    alone at the end.
    """
    kinds = defaultdict[str, list[Path]](list)
    for path in sorted(paths, key=lambda path: crc32(bytes(path.relative_to(HERE.parent)))):
        kinds["slow" if path in slow else "with packets" if has_packets(path) else "others"].append(path)
    return {
        path: number / len(files) * (SLOW_SHARE if kind == "slow" else 1)
        for kind, files in kinds.items()
        for number, path in enumerate(files)
    }


@cache
def has_packets(path: Path) -> bool:
    return HERE in path.parents and path.relative_to(HERE).parts[0] in WITH_PACKETS


@pytest.fixture(scope="session")
def warm_launcher() -> Iterator[WarmLauncher]:
    """Forks actors and the commands of `nodeagent`, instead of interpreters that import everything again."""
    servers = SeparateForkServer(*MODULES), SeparateForkServer(ACTOR)
    yield WarmLauncher(*servers)
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def busy_kernel(request: pytest.FixtureRequest, warm_launcher: WarmLauncher) -> Iterator[None]:
    """One in ten of the requests that agents and commands make to the kernel fails, except in modules marked `calm_kernel`."""
    with nullcontext() if request.node.get_closest_marker("calm_kernel") else warm_launcher.busy(request.node.nodeid):
        yield


@pytest.fixture(scope="session")
def network_namespaces() -> None:
    """Asked for by whatever makes namespaces, so that a CI machine without them fails with the reason."""
    reason = obstacle()
    if reason:
        pytest.fail(f"CI must run tests with packets, but: {reason}")

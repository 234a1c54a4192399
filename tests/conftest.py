"""Tests with packets need root and network namespaces. A machine without skips them; with CI=true they fail instead."""

import os
import shutil
from functools import cache
from pathlib import Path

import pytest

from nodeagent.lab.namespaces import LabError, create_namespaces, namespace_name, remove_namespace

HERE = Path(__file__).parent
WITH_PACKETS = frozenset({"netns", "e2e", "lab"})
PROGRAMS = ("ip", "nft", "setpriv", "openssl")


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(HERE).parts[0] not in WITH_PACKETS:
            continue
        item.add_marker(pytest.mark.kernel)
        if os.environ.get("CI") != "true" and (reason := obstacle()):
            item.add_marker(pytest.mark.skipif(True, reason=f"no network namespaces here: {reason}"))


@pytest.fixture(scope="session")
def network_namespaces() -> None:
    """Asked for by whatever makes namespaces, so that a CI machine without them fails with the reason."""
    reason = obstacle()
    if reason:
        pytest.fail(f"CI must run tests with packets, but: {reason}")

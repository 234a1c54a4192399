"""Watches of a long history: by selectors of a thousand terms, and in forms that clients make up."""

import threading
import time
from collections.abc import Iterator

import pytest

from tests.attack.server_process import Victim, victim
from tests.harness.stopwatch import allowed

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
OBJECTS = 4000
WATCHES = 20
GROWTH_MB = 60
OTHERS_WAIT_SECONDS = allowed(0.5)
TERMS = ",".join(f"a!=k{number:x}" for number in range(900))


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A server with a history of 4,000 objects of 4 kB."""
    with victim(tmp_path_factory.mktemp("busy"), "--history", "3600") as server:
        for number in range(OBJECTS):
            body = b'{"metadata":{"name":"n%d","labels":{"a":"b"}},"data":{"x":"%b"}}' % (number, b"x" * 4000)
            assert server.ask("POST", CONFIGMAPS, body)[0] == 201
        yield server


def watch(server: Victim, query: str, accept: str) -> int:
    """The bytes that a watch of two seconds receives from the beginning."""
    path = f"{CONFIGMAPS}?watch=1&timeoutSeconds=2&resourceVersion=1{query}"
    reported = 0
    with server.connect() as connection:
        head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nAuthorization: Bearer {server.token}\r\n"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        while part := connection.recv(65_536):
            reported += len(part)
    return reported


def all_at_once(server: Victim, asked: list[tuple[str, str]]) -> float:
    """How long others waited at most while all these watches went on."""
    watches = [threading.Thread(target=watch, args=(server, *about)) for about in asked]
    longest = 0.0
    for one in watches:
        one.start()
    while any(one.is_alive() for one in watches):
        started = time.monotonic()
        assert server.ask("GET", "/livez")[0] == 200
        longest = max(longest, time.monotonic() - started)
    return longest


def test_selectors_of_a_thousand_terms_hold_nobody_up(busy: Victim) -> None:
    waited = all_at_once(busy, [(f"&labelSelector={TERMS},none", "application/json")] * WATCHES)
    print(f"{WATCHES} watches that match nothing: others waited {waited:.3f} s at most")
    assert waited < OTHERS_WAIT_SECONDS


def test_forms_that_clients_make_up_leave_nothing_in_memory(busy: Victim) -> None:
    form = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v="
    assert watch(busy, "", f"{form}v1") > OBJECTS * 100
    before = busy.megabytes
    for turn in range(3):
        all_at_once(busy, [("", f"{form}v{turn}x{number}") for number in range(WATCHES)])
        all_at_once(busy, [("", f"{form}{version}") for version in ("v1", "v1beta1")] * (WATCHES // 2))
        all_at_once(busy, [("", "application/json;as=Table;g=meta.k8s.io;v=v1")] * 2)
        print(
            f"{busy.megabytes - before:+.0f} MB after {(turn + 1) * WATCHES} made-up versions and as many that there are"
        )
    assert busy.megabytes - before < GROWTH_MB

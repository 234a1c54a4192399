"""The program of the pods: a server of it and requests to it, over loopback."""

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.diagnosis.connectivity import pod_program
from nodeagent.diagnosis.connectivity.pod_program import answers_of
from tests.harness.free_ports import free_ports


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where a server answers, a process as in a pod."""
    number = free_ports(1)[0]
    server = subprocess.Popen(
        [sys.executable, "-IS", pod_program.__file__, "serve", str(number)], env={"POD_NAME": "server-a"}
    )
    end = time.monotonic() + 20.0
    while "refused" in str(ask("tcp", number)) and time.monotonic() < end:
        time.sleep(0.05)
    yield number
    server.terminate()
    assert server.wait(10) == 0, "SIGTERM ends it, although it may be the first process of a container"


def ask(kind: str, port: int, **more: Any) -> dict[str, Any]:
    request = {"kind": kind, "host": "127.0.0.1", "family": "IPv4", "port": port, "seconds": 2.0, **more}
    return answers_of([request], 10.0)[0]


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("size", [0, 16, 8192])
def test_the_server_says_who_it_is_and_whom_it_saw(port: int, kind: str, size: int) -> None:
    result = ask(kind, port, size=size, count=3)

    assert result["answers"] == [{"server": "server-a", "peer": "127.0.0.1", "own": "127.0.0.1", "error": ""}] * 3


def test_a_mebibyte_comes_back(port: int) -> None:
    assert ask("tcp", port, size=1 << 20)["answers"][0]["error"] == ""


def test_other_bytes_than_those_sent_are_seen() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer() -> None:
            _, peer = server.recvfrom(100)
            server.sendto(b"server-a 127.0.0.1\nother", peer)

        thread = threading.Thread(target=answer)
        thread.start()
        result = ask("udp", server.getsockname()[1])
        thread.join()

    assert result["answers"][0]["error"] == "what came back is not what was sent"


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_both_families_are_served(port: int, kind: str) -> None:
    result = ask(kind, port, host="::1", family="IPv6")

    assert result["answers"][0]["peer"] == "::1"


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_refusal_is_one_word_and_ends_the_row(kind: str) -> None:
    assert ask(kind, free_ports(1)[0], count=5)["answers"] == [{"error": "refused"}]


def test_silence_is_reported_with_its_seconds() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        result = ask("udp", silent.getsockname()[1], seconds=0.3)

    assert result["answers"] == [{"error": "no answer in 0.3 s"}]


def test_a_conversation_that_takes_too_long_is_given_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        slow = {"kind": "udp", "host": "127.0.0.1", "family": "IPv4", "port": silent.getsockname()[1], "seconds": 30.0}
        assert answers_of([slow], 0.2) == [{"error": "no answer in 0.2 s"}]


def test_a_name_has_addresses_or_an_error() -> None:
    assert ask("resolve", 0, host="localhost")["addresses"] == ["127.0.0.1"]
    assert ask("resolve", 0, host="nothing.invalid")["error"].startswith("the name nothing.invalid was not resolved: ")


def test_the_program_needs_python_alone() -> None:
    """As in a pod: no libraries, neither ours nor others; what is asked comes by standard input."""
    done = subprocess.run(
        [sys.executable, "-IS", pod_program.__file__, "ask"],
        input=json.dumps({"requests": [{"kind": "resolve", "host": "127.0.0.1", "family": "IPv4"}], "seconds": 5})
        + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    assert json.loads(done.stdout) == [{"addresses": ["127.0.0.1"]}]

"""Small bodies that come to much, one after another and together, with an eye on memory and on who else is served."""

import contextlib
import json
import threading
import time
from pathlib import Path

import pytest

from tests.attack.server_process import Victim, victim
from tests.harness.protobuf import envelope, field
from tests.harness.stopwatch import allowed

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
YAML = "application/yaml"
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
BOMBS = {
    "deep YAML": (b"[" * 3_000_000, YAML),
    "deep blocks": (b"- " * 1_500_000, YAML),
    "aliases": (b"a: &a [x,x,x]\nb: [" + b"*a," * 1_000_000 + b"]", YAML),
    "wide YAML": (b"[" + b"a," * 1_400_000 + b"]", YAML),
    "directives": (b"".join(b"%%TAG !a%d! tag:x\n" % n for n in range(120_000)) + b"---\na: 1\n", YAML),
    "values": (b'{"metadata":{"name":"a"},"data":{' + b'"a":"",' * 400_000 + b'"a":""}}', JSON),
    "keys": (b'{"metadata":{"name":"k"},"data":{' + b",".join(b'"k%d":""' % n for n in range(95_000)) + b',"k0":""}}', JSON),
    "labels": (json.dumps({"metadata": {"name": "l", "labels": {f"!{n}": "!" for n in range(90_000)}}}).encode(), JSON),
    "unknown": (json.dumps({"metadata": {"name": "u"}, **{f"x{n}": 1 for n in range(90_000)}}).encode(), JSON),
    "protobuf": (envelope("v1", "ConfigMap", field(1, field(13, b"") * 1_400_000)), PROTOBUF),
    "managedFields": (
        b'{"metadata":{"name":"m","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsV1":'
        + b'{"f:a":' * 10_000 + b"{}" + b"}" * 10_000 + b"}]}}", JSON,
    ),
}  # fmt: skip
OTHERS_WAIT_SECONDS = allowed(2.0)
OTHERS_WAIT_AMONG_MANY_SECONDS = allowed(10.0)
GROWTH_MB = 400


def ask_meanwhile(server: Victim, done: threading.Event, waits: list[float]) -> None:
    while not done.is_set():
        started = time.monotonic()
        status, _ = server.ask("GET", "/api/v1/namespaces/default")
        assert status == 200
        waits.append(time.monotonic() - started)


def test_bombs_neither_crash_it_nor_hold_it_up(tmp_path: Path) -> None:
    with victim(tmp_path) as server:
        before, done, waits = server.megabytes, threading.Event(), [0.0]
        meanwhile = threading.Thread(target=ask_meanwhile, args=(server, done, waits))
        meanwhile.start()
        try:
            for name, (body, media_type) in BOMBS.items():
                started = time.monotonic()
                status, answer = server.ask("POST", CONFIGMAPS, body, media_type)
                print(
                    f"{name}: {status} after {time.monotonic() - started:.2f} s, {server.megabytes - before:.0f} MB more"
                )
                assert status in (201, 400, 413, 422), answer
        finally:
            done.set()
            meanwhile.join()
        print(f"others waited {max(waits):.3f} s at most")
        assert max(waits) < OTHERS_WAIT_SECONDS
        assert server.megabytes - before < GROWTH_MB


def attack(server: Victim, body: bytes, media_type: str) -> None:
    """Whether an attacker gets an answer in time is not what this is about."""
    with contextlib.suppress(OSError):
        server.ask("POST", CONFIGMAPS, body, media_type)


@pytest.mark.parametrize("bomb", ["keys", "protobuf"])
def test_many_at_once(tmp_path: Path, bomb: str) -> None:
    body, media_type = BOMBS[bomb]
    with victim(tmp_path) as server:
        before, done, waits = server.megabytes, threading.Event(), [0.0]
        meanwhile = threading.Thread(target=ask_meanwhile, args=(server, done, waits))
        meanwhile.start()
        attackers = [threading.Thread(target=attack, args=(server, body, media_type)) for _ in range(20)]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join()
        done.set()
        meanwhile.join()
        print(
            f"20 of {bomb} at once: others waited {max(waits):.3f} s at most, {server.megabytes - before:.0f} MB more"
        )
        assert max(waits) < OTHERS_WAIT_AMONG_MANY_SECONDS
        assert server.megabytes - before < GROWTH_MB

"""Objects that are gone leave nothing in memory once history has moved on."""

from pathlib import Path

from tests.attack.server_process import Victim, victim

KEPT_BYTES = 60
ROUNDS = 5
OBJECTS = 1000
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


def make_and_delete(server: Victim, turn: int) -> None:
    for number in range(OBJECTS):
        name = f"object-{turn}-{number}"
        body = f'{{"metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"data":{{"x":"{name}"}}}}'
        assert server.ask("POST", CONFIGMAPS, body.encode())[0] == 201
        assert server.ask("DELETE", f"{CONFIGMAPS}/{name}")[0] == 200


def forget(server: Victim) -> None:
    """Waits until a list as of now can no longer be had: nothing that came before is kept for watches."""
    version = server.ask("GET", CONFIGMAPS)[1]["metadata"]["resourceVersion"]
    server.ask("POST", CONFIGMAPS, b'{"metadata":{"name":"last"}}')
    server.ask("DELETE", f"{CONFIGMAPS}/last")
    exact = f"{CONFIGMAPS}?resourceVersion={version}&resourceVersionMatch=Exact"
    server.until(lambda: server.ask("GET", exact)[0] == 410)


def kept_of_an_object(directory: Path, history_seconds: int, *, forgets: bool) -> float:
    """Bytes for each object that was made and deleted, from the better of the first to the better of the last two rounds."""
    with victim(directory, "--history", str(history_seconds), to_the_byte=True) as server:
        sizes = []
        for turn in range(ROUNDS):
            make_and_delete(server, turn)
            if forgets:
                forget(server)
            sizes.append(server.bytes_in_use)
            print(f"{sizes[-1] / 2**20:.2f} MB in use, {server.megabytes:.1f} MB resident")
    return (min(sizes[-2:]) - min(sizes[:2])) / ((ROUNDS - 2) * OBJECTS)


def test_a_deleted_object_takes_no_memory(tmp_path: Path) -> None:
    """What is in use at rest counts: between looks for cycles and at history, a process holds some megabytes of both."""
    kept = kept_of_an_object(tmp_path, 1, forgets=True)
    print(f"{kept:+.1f} bytes of each object")
    assert kept < KEPT_BYTES


def test_the_measurement_sees_kept_memory(tmp_path: Path) -> None:
    """The history of a day keeps the last state of each object."""
    kept = kept_of_an_object(tmp_path, 24 * 3600, forgets=False)
    print(f"{kept:+.1f} bytes of each object")
    assert kept > 10 * KEPT_BYTES

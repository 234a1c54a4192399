"""Objects that are gone leave nothing in memory once history has moved on."""

from pathlib import Path

from tests.attack.server_process import victim

KEPT_BYTES = 60
ROUNDS = 6
OBJECTS = 1500


def test_a_deleted_object_takes_no_memory(tmp_path: Path) -> None:
    """The process may grow while it warms up; from then on rounds of the same work leave it as large as it was."""
    base = "/api/v1/namespaces/default"
    with victim(tmp_path, "--history", "1") as server:
        sizes = []
        for turn in range(ROUNDS):
            for number in range(OBJECTS):
                name = f"object-{turn}-{number}"
                body = f'{{"metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"data":{{"x":"{name}"}}}}'
                assert server.ask("POST", f"{base}/configmaps", body.encode())[0] == 201
                assert server.ask("DELETE", f"{base}/configmaps/{name}")[0] == 200
            sizes.append(server.megabytes)
        print("MB after each round:", [f"{size:.1f}" for size in sizes])
        assert (sizes[-1] - sizes[2]) * 2**20 / ((ROUNDS - 3) * OBJECTS) < KEPT_BYTES

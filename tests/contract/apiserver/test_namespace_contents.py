"""Each namespace has the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`, whatever happens to them."""

import http.client
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.stopwatch import allowed

MERGE = {"Content-Type": "application/merge-patch+json"}


def account(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/serviceaccounts/default"


def authority(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"


def exists(found: Any) -> bool:
    return bool(found["kind"] != "Status")


def certificate(api: Any) -> str:
    text: str = api.server.credentials.authority.read_text()
    return text


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_the_system_namespaces_have_both(api: Any, name: str) -> None:
    api.until(account(name), exists)
    assert api.until(authority(name), exists)["data"] == {"ca.crt": certificate(api)}


def test_a_new_namespace_gets_both_and_again_when_they_are_deleted(api: Any, demo: str) -> None:
    for path in (account(demo), authority(demo)):
        first = api.until(path, exists)
        assert api.call("DELETE", path).status == 200
        uid = first["metadata"]["uid"]
        api.until(path, lambda found, uid=uid: exists(found) and found["metadata"]["uid"] != uid)


def test_a_changed_authority_is_restored_and_nothing_else_is(api: Any, demo: str) -> None:
    api.until(authority(demo), exists)
    patch = {"metadata": {"annotations": {"mine": "yes"}}, "data": {"ca.crt": "wrong", "more": "x"}}
    assert api.call("PATCH", authority(demo), patch, {**MERGE, "User-Agent": "kubectl/1.36"}).status == 200
    found = api.until(authority(demo), lambda found: found["data"].get("ca.crt") == certificate(api))
    assert found["data"] == {"ca.crt": certificate(api)}
    assert found["metadata"]["annotations"]["mine"] == "yes"


def test_another_publisher_is_not_fought(api: Any, demo: str) -> None:
    """kube-controller-manager beside this server may have been given another authority: it writes it once, and it stays."""
    before = api.until(authority(demo), exists)["metadata"]["resourceVersion"]
    agent = {**MERGE, "User-Agent": "kube-controller-manager/v1.36.2 (linux/amd64)"}
    written = api.call("PATCH", authority(demo), {"data": {"ca.crt": "theirs"}}, agent).json
    assert written["metadata"]["resourceVersion"] != before
    # What comes after it in the controller's queue has been dealt with, so it has been looked at, too.
    api.call("DELETE", account(demo))
    api.until(account(demo), exists)
    assert api.get(authority(demo)) == written


def test_a_namespace_that_is_deleted_goes_with_both(api: Any, demo: str) -> None:
    api.until(authority(demo), exists)
    assert api.call("DELETE", f"/api/v1/namespaces/{demo}").status == 200
    api.until(f"/api/v1/namespaces/{demo}", lambda found: found.get("code") == 404)
    assert api.get(account(demo))["code"] == api.get(authority(demo))["code"] == 404


def test_a_new_authority_is_published_in_existing_namespaces(start: Callable[..., Any], tmp_path: Path) -> None:
    api = start()
    first = api.until(authority("default"), exists)["data"]["ca.crt"]
    api.stop()
    for name in ("ca.crt", "ca.key"):
        (tmp_path / "pki" / name).unlink()
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "30",
    ]
    command += [
        "-subj",
        "/CN=another",
        "-keyout",
        str(tmp_path / "pki" / "ca.key"),
        "-out",
        str(tmp_path / "pki" / "ca.crt"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "pki" / "ca.key").chmod(0o600)
    for leaf in (tmp_path / "pki").glob("*"):
        if leaf.suffix in (".crt", ".key") and not leaf.stem.startswith(("ca", "account")):
            leaf.unlink()
    api = start()
    assert certificate(api) != first
    for name in ("default", "kube-system"):
        api.until(authority(name), lambda found: exists(found) and found["data"] == {"ca.crt": certificate(api)})


def test_several_servers_give_a_namespace_one_of_each(start: Callable[..., Any]) -> None:
    servers = [start(advertise_address=f"192.0.2.{number}") for number in (1, 2)]
    for number in range(6):
        servers[number % 2].call("POST", "/api/v1/namespaces", {"metadata": {"name": f"n{number}"}})
    for number in range(6):
        api = servers[1 - number % 2]
        held = api.until(authority(f"n{number}"), exists)
        assert held["data"] == {"ca.crt": certificate(api)}
        assert api.until(account(f"n{number}"), exists)["metadata"]["namespace"] == f"n{number}"


def test_without_certificates_there_is_an_account_and_no_authority(start: Callable[..., Any]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", start(insecure=True).server.port)

    def get(path: str) -> Any:
        connection.request("GET", path)
        return json.load(connection.getresponse())

    deadline = time.monotonic() + allowed(10.0)
    while not exists(get(account("default"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert exists(get(account("default")))
    assert not exists(get(authority("default")))
    connection.close()

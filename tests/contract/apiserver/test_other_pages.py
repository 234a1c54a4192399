"""A server without credentials on a workstation, whose browser shows pages of strangers."""

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any

import pytest

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def ask(start: Callable[..., Any]) -> Callable[..., int]:
    """The status of a request with these headers and no others of a client's own."""
    port = start(insecure=True).server.port

    def answered(method: str, path: str, body: bytes = b"", **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in ({"Host": f"127.0.0.1:{port}"} | headers).items():
            connection.putheader(name, value.format(port=port))
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        status = connection.getresponse().status
        connection.close()
        return status

    return answered


def test_a_page_of_another_origin_writes_nothing(ask: Callable[..., int]) -> None:
    """What a form or `fetch` with `no-cors` sends: no Content-Type, or one of three that need no permission."""
    body = json.dumps({"metadata": {"name": "evil"}}).encode()
    for content_type in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}):
        assert ask("POST", NAMESPACES, body, Origin="http://evil.example", **content_type) == 403
    assert ask("POST", NAMESPACES, body, Origin="null") == 403
    assert ask("POST", NAMESPACES, body, Origin="http://127.0.0.1:1") == 403
    assert ask("GET", f"{NAMESPACES}/evil") == 404


def test_a_name_that_was_made_to_mean_this_machine_reads_nothing(ask: Callable[..., int]) -> None:
    for path in ("/api/v1/secrets", "/metrics", "/version", NAMESPACES):
        assert ask("GET", path, Host="evil.example:{port}") == 403
    assert ask("GET", "/api/v1/secrets", Host="127.0.0.1.evil.example") == 403
    assert ask("GET", "/api/v1/secrets", Host="evil.example:{port}", Authorization="Bearer a") == 403


def test_clients_on_this_machine_are_answered(ask: Callable[..., int]) -> None:
    """The control."""
    for host in ("127.0.0.1:{port}", "localhost:{port}", "localhost", "[::1]:{port}"):
        assert ask("GET", "/api/v1/secrets", Host=host) == 200
    assert ask("GET", NAMESPACES, Host="localhost:{port}", Origin="http://localhost:{port}") == 200
    assert ask("POST", NAMESPACES, json.dumps({"metadata": {"name": "mine"}}).encode()) == 201


def test_a_certificate_of_the_browser_is_not_for_pages_of_others(start: Callable[..., Any]) -> None:
    """A browser that holds one shows it to whatever page asks, as it does with cookies."""
    server = start().server
    pki = server.credentials.authority.parent
    context = ssl.create_default_context(cafile=str(server.credentials.authority))
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def post(name: str, **headers: str) -> int:
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
        connection.request("POST", NAMESPACES, json.dumps({"metadata": {"name": name}}), headers)
        status = connection.getresponse().status
        connection.close()
        return status

    assert post("evil", Origin="https://evil.example") == 403
    assert post("evil", Origin="null") == 403
    assert post("mine", Origin=f"https://127.0.0.1:{server.port}") == 201
    assert post("tools") == 201
    token = {"Authorization": f"Bearer {server.credentials.admin_token}"}
    assert post("shown", Origin="https://console.example", **token) == 201, (
        "no page can send a token that it does not know"
    )

"""Which Host and Origin headers a server answers."""

import pytest

from nodeagent.runtime.serving.origins import AllowedHosts

HOSTS = AllowedHosts(["Node-A", "node-a.example.com."])


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("", "", True),
        ("127.0.0.1:10249", "", True),
        ("127.0.0.1", "", True),
        ("192.0.2.11:10249", "", True),
        ("[::1]:10249", "", True),
        ("[fe80::2]", "", True),
        ("fe80::2", "", True),
        ("localhost:8080", "", True),
        ("LOCALHOST", "", True),
        ("node-a:10249", "", True),
        ("NODE-A.example.COM", "", True),
        ("evil.example:10249", "", False),
        ("node-a.evil.example", "", False),
        ("127.0.0.1.evil.example", "", False),
        ("localhost.evil.example", "", False),
        ("127.0.0.1.:10249", "", False),
        ("127.0.0.1:10249\x00", "", False),
        ("2130706433", "", False),
        ("localhost:8080", "http://localhost:8080", True),
        ("[::1]:10249", "http://[::1]:10249", True),
        ("localhost:8080", "https://LOCALHOST:8080", True),
        ("localhost:8080", "http://localhost:8081", False),
        ("localhost:8080", "http://evil.example", False),
        ("evil.example", "http://evil.example", False),
        ("localhost:8080", "null", False),
        ("", "http://evil.example", False),
    ],
)
def test_which_headers_are_answered(host: str, origin: str, allowed: bool) -> None:
    assert (HOSTS.why_refused(host, origin) == "") is allowed


@pytest.mark.parametrize(
    ("host", "allowed"), [("127.0.0.1:80", True), ("localhost:80", True), ("127.0.0.1", False), ("127.0.0.1:81", False)]
)
def test_where_the_port_is_fixed_another_is_refused(host: str, allowed: bool) -> None:
    assert (AllowedHosts(port=80).why_refused(host, "") == "") is allowed

"""Which proxy the environment means for a server, by the rules of Go's programs."""

import pytest

from nodeagent.proxy.source.client.api_errors import KubeconfigError
from nodeagent.proxy.source.client.proxy import environment_proxy, without_password

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "environment", "proxy"),
    [
        pytest.param("https://192.0.2.1:6443", {}, None, id="none"),
        pytest.param("https://192.0.2.1:6443", {"HTTPS_PROXY": PROXY}, PROXY, id="https"),
        pytest.param("https://192.0.2.1:6443", {"https_proxy": PROXY}, PROXY, id="https in lower case"),
        pytest.param(
            "https://192.0.2.1:6443", {"HTTPS_PROXY": PROXY, "https_proxy": "x"}, PROXY, id="upper case first"
        ),
        pytest.param("https://192.0.2.1:6443", {"HTTP_PROXY": PROXY}, None, id="the other scheme's"),
        pytest.param("http://192.0.2.1:8080", {"HTTP_PROXY": PROXY}, PROXY, id="http"),
        pytest.param("http://192.0.2.1:8080", {"HTTPS_PROXY": PROXY}, None, id="http with that of https"),
        pytest.param("https://api.example", {"HTTPS_PROXY": "10.1.1.1:3128"}, "http://10.1.1.1:3128", id="no scheme"),
        pytest.param("https://api.example", {"HTTPS_PROXY": "https://u:p@proxy"}, "https://u:p@proxy", id="password"),
        pytest.param("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None, id="localhost"),
        pytest.param("https://127.1.2.3:6443", {"HTTPS_PROXY": PROXY}, None, id="loopback"),
        pytest.param("https://[::1]:6443", {"HTTPS_PROXY": PROXY}, None, id="IPv6 loopback"),
        pytest.param("https://localhost:6443", {"HTTPS_PROXY": "socks5://x"}, None, id="unusable, but not needed"),
    ],
)
def test_the_proxy_of_a_server(server: str, environment: dict[str, str], proxy: str | None) -> None:
    assert environment_proxy(server, environment) == proxy


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        pytest.param("https://10.1.2.3:6443", "*", True, id="everything"),
        pytest.param("https://10.1.2.3:6443", "192.0.2.0/24, 10.0.0.0/8", True, id="in a CIDR"),
        pytest.param("https://11.1.2.3:6443", "192.0.2.0/24,10.0.0.0/8", False, id="in no CIDR"),
        pytest.param("https://[fd00::7]:6443", "10.0.0.0/8,fd00::/8", True, id="in a CIDR of IPv6"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.0/99,,  ,10.1.2.3", True, id="nonsense is passed over"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:6443", True, id="an address with the port"),
        pytest.param("https://10.1.2.3:6443", "10.1.2.3:443", False, id="an address with another port"),
        pytest.param("https://10.1.2.3", "10.1.2.3:443", True, id="the scheme's own port"),
        pytest.param("https://[fd00::7]:6443", "fd00:0::7", True, id="IPv6 in another spelling"),
        pytest.param("https://[fd00::7]:6443", "[fd00::7]:6443", True, id="IPv6 with the port"),
        pytest.param("https://[fd00::7]:6443", "[fd00::7]:443", False, id="IPv6 with another port"),
        pytest.param("https://10.1.2.3:6443", "1.2.3", False, id="an address is no domain"),
        pytest.param("https://api.corp.example", "corp.example", True, id="a subdomain"),
        pytest.param("https://corp.example", "corp.example", True, id="the domain itself"),
        pytest.param("https://API.Corp.Example", "CORP.example", True, id="in either case"),
        pytest.param("https://apicorp.example", "corp.example", False, id="only the end of a name"),
        pytest.param("https://api.corp.example", ".corp.example", True, id="a leading dot: subdomains"),
        pytest.param("https://corp.example", ".corp.example", False, id="a leading dot: not the domain itself"),
        pytest.param("https://api.corp.example", "*.corp.example", True, id="a star and a dot"),
        pytest.param("https://corp.example", "*.corp.example", False, id="a star and a dot: not the domain itself"),
        pytest.param("https://api.corp.example:6443", "corp.example:6443", True, id="a domain with the port"),
        pytest.param("https://api.corp.example:6443", "corp.example:443", False, id="a domain with another port"),
        pytest.param("https://api.corp.example", ":443,.", False, id="entries without a host"),
    ],
)
def test_servers_that_are_reached_directly(server: str, no_proxy: str, direct: bool) -> None:
    for variable in ("NO_PROXY", "no_proxy"):
        environment = {"HTTPS_PROXY": PROXY, variable: no_proxy}
        assert environment_proxy(server, environment) == (None if direct else PROXY)


@pytest.mark.parametrize("value", ["socks5://user:secret@proxy:1080", "http://", "http://proxy:port", "ftp://proxy"])
def test_a_proxy_that_cannot_be_used_is_named(value: str) -> None:
    with pytest.raises(KubeconfigError, match=r"^HTTPS_PROXY: '.*' is not the URL of an HTTP proxy") as caught:
        environment_proxy("https://192.0.2.1:6443", {"HTTPS_PROXY": value})
    assert "secret" not in str(caught.value)


def test_a_password_is_not_shown() -> None:
    assert without_password("http://user:secret@proxy:3128/") == "http://user:***@proxy:3128/"
    assert without_password(PROXY) == PROXY

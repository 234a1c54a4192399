"""Which servers are meant: by configuration, by resolv.conf, and as it changes."""

import asyncio
from pathlib import Path

import pytest

from nodeagent.names.upstream.node_resolvers import NodeResolvers, current_resolvers
from nodeagent.names.upstream.resolv_conf import ResolvConf, parse_resolv_conf, servers_behind
from nodeagent.names.upstream.stub_zones import StubZones
from nodeagent.names.upstream.upstream_address import Server, parse_server, without_own
from nodeagent.wire.dns.domain_names import from_text

from .scripted import ONE, TWO, Scene, Script, play, refused, says, texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.1", Server("192.0.2.1", 53)),
        (" 192.0.2.1:5353 ", Server("192.0.2.1", 5353)),
        ("2001:DB8:0::1", Server("2001:db8::1", 53)),
        ("[2001:db8::1]", Server("2001:db8::1", 53)),
        ("[2001:db8::1]:5353", Server("2001:db8::1", 5353)),
        ("fe80::1%eth0", Server("fe80::1%eth0", 53)),
        ("::ffff:192.0.2.1", Server("192.0.2.1", 53)),
    ],
)
def test_a_server_is_an_address_and_perhaps_a_port(text: str, expected: Server) -> None:
    assert parse_server(text) == expected
    assert parse_server(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dns.example.com",
        "192.0.2",
        "192.0.2.1:",
        "192.0.2.1:0",
        "192.0.2.1:65536",
        "192.0.2.1:x",
        "192.0.2.1:٣",
        "[2001:db8::1",
        "[2001:db8::1]53",
        "192.0.2.1:53:53",
    ],
)
def test_entries_that_are_not_servers_are_named(text: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_server(text)
    assert repr(text) in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "nameserver 192.0.2.1\nnameserver 2001:db8::1\n",
            ResolvConf((Server("192.0.2.1"), Server("2001:db8::1"))),
            id="two",
        ),
        pytest.param("# nameserver 192.0.2.1\n;nameserver 192.0.2.2\n", ResolvConf(), id="comments"),
        pytest.param(
            "nameserver\t192.0.2.1   # why\n  nameserver 192.0.2.2",
            ResolvConf((Server("192.0.2.1"), Server("192.0.2.2"))),
            id="spaces",
        ),
        pytest.param("nameserver x\nnameserver\noptions ndots:5\nfoo\n", ResolvConf(), id="nonsense"),
        pytest.param("nameserver 192.0.2.1\nnameserver 192.0.2.1\n", ResolvConf((Server("192.0.2.1"),)), id="twice"),
        pytest.param("search a.example b.example.\n", ResolvConf(search=("a.example", "b.example")), id="search"),
        pytest.param(
            "search a.example\ndomain c.example\n", ResolvConf(search=("c.example",)), id="last-of-search-and-domain"
        ),
        pytest.param(
            "domain c.example\nsearch a.example b.example\n",
            ResolvConf(search=("a.example", "b.example")),
            id="search-last",
        ),
        pytest.param("search .\n", ResolvConf(), id="search-the-root"),
        pytest.param(
            "".join(f"nameserver 192.0.2.{n}\n" for n in range(1, 20)),
            ResolvConf(tuple(Server(f"192.0.2.{n}") for n in range(1, 9))),
            id="many",
        ),
    ],
)
def test_resolv_conf_is_read_as_its_manual_says(text: str, expected: ResolvConf) -> None:
    assert parse_resolv_conf(text) == expected


def conf(*addresses: str) -> ResolvConf:
    return ResolvConf(tuple(map(Server, addresses)))


@pytest.mark.parametrize(
    ("listed", "behind", "expected"),
    [
        pytest.param(["192.0.2.1"], ["192.0.2.9"], ["192.0.2.1"], id="no-stub"),
        pytest.param(["127.0.0.53"], ["192.0.2.9", "192.0.2.8"], ["192.0.2.9", "192.0.2.8"], id="stub"),
        pytest.param(["127.0.0.53"], [], ["127.0.0.53"], id="stub-alone"),
        pytest.param(["127.0.0.53"], ["127.0.0.54"], ["127.0.0.53"], id="stub-behind-stub"),
        pytest.param(["127.0.0.53", "192.0.2.1"], ["192.0.2.9"], ["127.0.0.53", "192.0.2.1"], id="stub-and-more"),
        pytest.param(["127.0.0.1"], ["192.0.2.9"], ["127.0.0.1"], id="another-resolver-of-the-node"),
    ],
)
def test_behind_the_stub_of_systemd_are_the_real_servers(
    listed: list[str], behind: list[str], expected: list[str]
) -> None:
    assert servers_behind(conf(*listed), conf(*behind)) == tuple(map(Server, expected))


@pytest.mark.parametrize(
    ("listening", "left"),
    [
        pytest.param([], ["10.96.0.10", "127.0.0.1", "192.0.2.1", "192.0.2.9"], id="nothing"),
        pytest.param([Server("10.96.0.10")], ["127.0.0.1", "192.0.2.1", "192.0.2.9"], id="one"),
        pytest.param(
            [Server("10.96.0.10", 1053)], ["10.96.0.10", "127.0.0.1", "192.0.2.1", "192.0.2.9"], id="another-port"
        ),
        pytest.param([Server("0.0.0.0")], ["10.96.0.10", "192.0.2.9"], id="wildcard"),
        pytest.param([Server("::")], ["10.96.0.10", "192.0.2.9"], id="wildcard-of-ipv6"),
        pytest.param(
            [Server("::", 1053)], ["10.96.0.10", "127.0.0.1", "192.0.2.1", "192.0.2.9"], id="wildcard-of-another-port"
        ),
    ],
)
def test_we_are_not_our_own_server(listening: list[Server], left: list[str]) -> None:
    servers = [Server(address) for address in ("10.96.0.10", "127.0.0.1", "192.0.2.1", "192.0.2.9")]
    assert without_own(servers, listening, {"192.0.2.1"}) == tuple(map(Server, left))


def test_resolvers_of_the_moment_are_those_behind_a_stub(tmp_path: Path) -> None:
    path, behind = tmp_path / "resolv.conf", tmp_path / "behind"
    assert current_resolvers(path, behind) == ()
    path.write_text("nameserver 127.0.0.53")
    behind.write_text("nameserver 192.0.2.53")
    assert current_resolvers(path, behind) == (("192.0.2.53", 53),)


def test_resolv_conf_is_followed_and_old_answers_are_not_believed(tmp_path: Path) -> None:
    path, behind = tmp_path / "resolv.conf", tmp_path / "behind"
    path.write_text(f"nameserver {ONE.address}\nsearch a.example\n")
    resolvers = NodeResolvers(path, behind)
    script = Script(
        one=says("www.example.com. 300 IN A 192.0.2.101"), two=says("www.example.com. 300 IN A 192.0.2.102")
    )

    async def scenario(scene: Scene) -> None:
        assert texts(await scene.ask()) == ["www.example.com. 300 IN A 192.0.2.101"]
        replacement = tmp_path / "new"
        replacement.write_text(f"nameserver {TWO.address}\nsearch b.example\n")
        replacement.rename(path)
        await asyncio.sleep(2.1)
        assert texts(await scene.ask()) == ["www.example.com. 300 IN A 192.0.2.102"]
        assert resolvers.search == ("b.example",)
        assert [state.server for state in scene.upstream.servers] == [TWO]

    play(script, scenario, resolvers=resolvers)


@pytest.mark.parametrize("content", [None, "", "# being written\n"], ids=["gone", "empty", "nobody"])
def test_a_file_without_servers_leaves_the_last_ones(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(f"nameserver {ONE.address}\nsearch a.example\n")
    resolvers = NodeResolvers(path, tmp_path / "behind")

    async def scenario(scene: Scene) -> None:
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        await asyncio.sleep(10)
        assert resolvers.servers == (ONE,)
        assert resolvers.search == ("a.example",)
        path.write_text(f"nameserver {TWO.address}\n")
        await asyncio.sleep(2.1)
        assert resolvers.servers == (TWO,)

    play(Script(one=refused, two=refused), scenario, resolvers=resolvers)


def test_the_file_behind_the_stub_is_followed_too(tmp_path: Path) -> None:
    path, behind = tmp_path / "resolv.conf", tmp_path / "behind"
    path.write_text("nameserver 127.0.0.53\n")
    resolvers = NodeResolvers(path, behind)
    assert resolvers.servers == (Server("127.0.0.53"),)

    async def scenario(scene: Scene) -> None:
        behind.write_text(f"nameserver {ONE.address}\n")
        await asyncio.sleep(2.1)
        assert resolvers.servers == (ONE,)

    script = Script(one=refused)
    script.behaviours[Server("127.0.0.53")] = refused
    play(script, scenario, resolvers=resolvers)


def test_a_stub_zone_has_a_name_and_servers() -> None:
    with pytest.raises(ValueError, match="no server"):
        StubZones({"corp.example": []})
    with pytest.raises(ValueError, match="63"):
        StubZones({"a..b": [ONE]})
    root = StubZones({".": [ONE], "corp.example": [TWO, ONE]})
    assert root.servers_for(from_text("x.example")) == (ONE,)
    assert root.servers_for(from_text("corp.example")) == (TWO, ONE)
    assert root.servers == (ONE, TWO)
    assert StubZones({"corp.example": [TWO]}).servers_for(from_text("example")) is None

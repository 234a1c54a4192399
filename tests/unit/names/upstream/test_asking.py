"""Whom a question goes to, when, and which answer counts. All in virtual time."""

import asyncio
import dataclasses
import errno

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest

from nodeagent.names.upstream.limits import AskLimits, Limits

from .scripted import (
    ONE,
    SOA,
    THREE,
    TWO,
    Packets,
    Scene,
    Script,
    code,
    play,
    query,
    refused,
    response,
    says,
    silent,
    texts,
)

WWW = "www.example.com. 300 IN A 192.0.2.53"


def test_an_answer_has_the_id_the_letter_case_and_the_flags_of_its_query() -> None:
    async def scenario(scene: Scene) -> None:
        asked = query("WwW.eXample.COM.")
        raw = await scene.upstream.resolve(asked.to_wire())
        assert raw[:2] == asked.to_wire()[:2]
        assert b"\3WwW\7eXample\3COM\0" in raw
        answer = dns.message.from_wire(raw)
        assert dns.flags.to_text(answer.flags) == "QR RD RA"
        assert answer.answer[0].name.to_text() == "WwW.eXample.COM.", "the owner is the question's name"
        assert texts(answer) == ["WwW.eXample.COM. 300 IN A 192.0.2.53"]

    play(Script(one=says(WWW)), scenario)


def test_a_fast_server_is_asked_alone() -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NOERROR"
        assert scene.script.asked() == [(0.0, "one", "udp")]

    play(Script(one=says(WWW, after=0.09), two=says(WWW)), scenario)


def test_a_second_server_is_asked_after_100_ms_and_the_first_answer_counts() -> None:
    async def scenario(scene: Scene) -> None:
        assert texts(await scene.ask()) == ["www.example.com. 300 IN A 192.0.2.2"]
        assert scene.script.asked() == [(0.0, "one", "udp"), (0.1, "two", "udp")]
        assert scene.now == pytest.approx(0.11)
        assert scene.upstream.hedges == 1

    late = says("www.example.com. 300 IN A 192.0.2.1", after=0.3)
    play(Script(one=late, two=says("www.example.com. 300 IN A 192.0.2.2")), scenario)


def test_the_slow_first_server_still_wins_if_it_is_earlier() -> None:
    async def scenario(scene: Scene) -> None:
        assert texts(await scene.ask()) == ["www.example.com. 300 IN A 192.0.2.1"]
        assert [state.failures for state in scene.upstream.servers] == [0, 0]

    one = says("www.example.com. 300 IN A 192.0.2.1", after=0.15)
    play(Script(one=one, two=says("www.example.com. 300 IN A 192.0.2.2", after=0.2)), scenario)


def test_a_server_that_nobody_listens_at_costs_no_time() -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NOERROR"
        assert scene.now == pytest.approx(0.01)

    play(Script(one=refused, two=says(WWW)), scenario)


def test_udp_is_repeated_and_then_given_up_for_tcp() -> None:
    def only_tcp(asked: dns.message.Message, stream: bool) -> Packets:
        return [(0.01, response(asked, [WWW]).to_wire())] if stream else []

    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NOERROR"
        assert scene.script.asked() == [(0.0, "one", "udp"), (0.8, "one", "udp"), (2.0, "one", "tcp")]
        first, again = (message.id for _, _, message, stream in scene.script.seen if not stream)
        assert first != again

    play(Script(one=only_tcp), scenario)


def test_without_an_upstream_answer_the_client_gets_servfail_in_time() -> None:
    """Before musl gives up, which waits 5 seconds."""

    async def scenario(scene: Scene) -> None:
        answer = await scene.ask(query(use_edns=0))
        assert code(answer) == "SERVFAIL"
        assert answer.edns == 0
        assert scene.now == pytest.approx(4.0)

    play(Script(one=silent, two=silent), scenario)


def test_a_truncated_answer_is_fetched_by_tcp() -> None:
    many = [f"www.example.com. 300 IN A 192.0.2.{n}" for n in range(1, 101)]

    def cut(asked: dns.message.Message, stream: bool) -> Packets:
        flags = "QR RD RA" if stream else "QR RD RA TC"
        return [(0.01, response(asked, many if stream else many[:5], flags=flags).to_wire(max_size=65535))]

    async def scenario(scene: Scene) -> None:
        answer = await scene.ask()
        assert len(texts(answer)) == 100, "not cut to any size"
        assert not answer.flags & dns.flags.TC
        assert [how for _, _, how in scene.script.asked()] == ["udp", "tcp"]

    play(Script(one=cut), scenario)


def test_a_truncated_answer_without_tcp_is_no_answer_but_another_server_has_it() -> None:
    def cut(asked: dns.message.Message, stream: bool) -> Packets:
        if stream:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        return [(0.01, response(asked, [WWW], flags="QR RD RA TC").to_wire())]

    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NOERROR"
        assert scene.now == pytest.approx(0.02)

    play(Script(one=cut, two=says(WWW)), scenario)

    async def alone(scene: Scene) -> None:
        assert code(await scene.ask()) == "SERVFAIL"

    play(Script(one=cut), alone)


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", "NOTIMP"])
def test_after_a_refusal_another_server_is_asked(rcode: str) -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NOERROR"
        assert scene.now == pytest.approx(0.02)
        assert all(state.up for state in scene.upstream.servers)

    play(Script(one=says(rcode=rcode), two=says(WWW)), scenario)


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", "NOTIMP"])
def test_a_refusal_of_all_is_passed_on_at_once(rcode: str) -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == rcode
        assert scene.now == pytest.approx(0.02)
        assert [how for _, _, how in scene.script.asked()] == ["udp", "udp"]

    play(Script(one=says(rcode=rcode), two=says(rcode=rcode)), scenario)


def test_a_refusal_waits_for_a_silent_server_only_a_moment() -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "REFUSED"
        assert scene.now == pytest.approx(0.81)

    play(Script(one=says(rcode="REFUSED"), two=silent), scenario)


def test_nxdomain_is_an_answer_and_ends_the_search() -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NXDOMAIN"
        assert len(scene.script.seen) == 1

    play(Script(one=says(authority=[SOA], rcode="NXDOMAIN"), two=says(WWW)), scenario)


def test_stub_zones_have_their_own_servers_and_the_longest_counts() -> None:
    zones = {"corp.example": [TWO], "lab.corp.example.": [THREE]}
    script = Script(one=says(rcode="NXDOMAIN"), two=says(rcode="NXDOMAIN"), three=says(rcode="NXDOMAIN"))

    async def scenario(scene: Scene) -> None:
        for name in ("corp.example.", "x.CORP.example.", "x.lab.corp.example.", "xcorp.example.", "example."):
            await scene.ask(query(name))
        assert [server for _, server, _, _ in scene.script.seen] == [TWO, TWO, THREE, ONE, ONE]

    play(script, scenario, servers=[ONE], zones=zones)  # type: ignore[arg-type]


def test_without_a_server_every_name_fails_at_once() -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "SERVFAIL"
        assert scene.now == 0

    play(Script(), scenario)


def test_our_own_addresses_are_not_asked() -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NOERROR"
        assert {server for _, server, _, _ in scene.script.seen} == {TWO}
        assert not [server for _, server, _ in scene.script.probes if server == ONE]

    play(Script(one=says(rcode="REFUSED"), two=says(WWW)), scenario, listening=[ONE])


def test_equal_questions_under_way_are_asked_once() -> None:
    async def scenario(scene: Scene) -> None:
        clients = [query("www.example.com."), query("WWW.example.com."), query(use_edns=0)]
        answers = await asyncio.gather(*map(scene.ask, clients))
        assert [answer.id for answer in answers] == [client.id for client in clients]
        assert len(scene.script.seen) == 1
        assert scene.upstream.counts.joined == 2
        await asyncio.gather(scene.ask(query(kind="AAAA")), scene.ask(query(kind="TXT")))
        assert len(scene.script.seen) == 3, "another type is another question"

    play(Script(one=says(WWW)), scenario)


def test_a_client_that_goes_away_takes_nothing_from_the_others() -> None:
    async def scenario(scene: Scene) -> None:
        first = asyncio.ensure_future(scene.ask())
        second = asyncio.ensure_future(scene.ask())
        await asyncio.sleep(0.01)
        first.cancel()
        assert code(await second) == "NOERROR"
        assert len(scene.script.seen) == 1
        with pytest.raises(asyncio.CancelledError):
            await first

    play(Script(one=says(WWW, after=0.05)), scenario)


@pytest.mark.parametrize(("bound", "most"), [("questions", 3), ("waiting", 2)])
def test_questions_and_clients_under_way_are_bounded(bound: str, most: int) -> None:
    """Of three questions one client has two."""
    limits = Limits(ask=dataclasses.replace(AskLimits(), **{bound: most}))

    async def scenario(scene: Scene) -> None:
        held = [asyncio.ensure_future(scene.ask(query(f"n{n}.example.com."))) for n in range(2)]
        await asyncio.sleep(0.01)
        assert code(await scene.ask(query("n3.example.com."))) == "SERVFAIL"
        assert scene.now == pytest.approx(0.01), "at once"
        assert scene.upstream.counts.full == 1
        assert [code(await one) for one in held] == ["NXDOMAIN"] * 2
        assert code(await scene.ask(query("n4.example.com."))) == "NXDOMAIN", "there is room again"

    play(Script(one=says(rcode="NXDOMAIN", after=0.05)), scenario, limits=limits)


def test_edns_is_ours_with_the_clients_do_and_without_its_options() -> None:
    async def scenario(scene: Scene) -> None:
        cookie = dns.edns.GenericOption(dns.edns.OptionType.COOKIE, b"12345678")
        answer = await scene.ask(query(use_edns=0, payload=4000, want_dnssec=True, options=[cookie]))
        assert (answer.edns, answer.payload, bool(answer.ednsflags & dns.flags.DO)) == (0, 4000, True)
        sent = scene.script.seen[0][2]
        assert (sent.payload, bool(sent.ednsflags & dns.flags.DO), sent.options) == (1232, True, ())
        assert (await scene.ask(query(kind="AAAA"))).edns == -1, "no OPT for who sent none"
        plain = scene.script.seen[1][2]
        assert (plain.edns, bool(plain.ednsflags & dns.flags.DO)) == (0, False)

    play(Script(one=says(WWW)), scenario)


@pytest.mark.parametrize("bare", [False, True], ids=["with-question", "header-only"])
def test_a_server_without_edns_is_asked_without_from_then_on(bare: bool) -> None:
    def old(asked: dns.message.Message, stream: bool) -> Packets:
        if asked.edns < 0:
            return [(0.01, response(asked, [WWW]).to_wire())]
        wire = asked.to_wire()
        header = wire[:2] + b"\x81\x81" + (b"\0" * 8 if bare else b"\0\1\0\0\0\0\0\0")
        return [(0.01, header if bare else header + b"\3www\7example\3com\0\0\1\0\1")]

    async def scenario(scene: Scene) -> None:
        answer = await scene.ask(query(use_edns=0))
        assert (code(answer), answer.edns) == ("NOERROR", 0)
        assert [message.edns for _, _, message, _ in scene.script.seen] == [0, -1]
        await scene.ask(query("WWW.example.com.", flags=0))
        assert [message.edns for _, _, message, _ in scene.script.seen] == [0, -1, -1]

    play(Script(one=old), scenario)


def test_a_servers_high_rcode_needs_the_clients_edns() -> None:
    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask(query(use_edns=0))) == "BADCOOKIE"
        assert code(await scene.ask(query(flags=0))) == "SERVFAIL"

    play(Script(one=says(rcode="BADCOOKIE")), scenario)


@pytest.mark.parametrize("flags", ["RD", "", "RD AD", "RD CD", "AD CD"])
def test_flags_of_the_client_are_passed_on_and_kept_apart(flags: str) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(query(flags=dns.flags.from_text("RD")))
        answer = await scene.ask(query(flags=dns.flags.from_text(flags)))
        sent = scene.script.seen[-1][2]
        assert dns.flags.to_text(sent.flags) == flags
        assert len(scene.script.seen) == (1 if flags == "RD" else 2)
        returned = answer.flags & (dns.flags.RD | dns.flags.CD)
        assert returned == dns.flags.from_text(flags) & (dns.flags.RD | dns.flags.CD)
        assert bool(answer.flags & dns.flags.AD) == ("AD" in flags), "AD only for who asks (RFC 6840, 5.8)"
        await scene.ask(query(use_edns=0, want_dnssec=True, flags=dns.flags.from_text(flags)))
        assert len(scene.script.seen) == (2 if flags == "RD" else 3), "DO is another question"

    play(Script(one=says(WWW, flags="QR RD RA AD")), scenario)


@pytest.mark.parametrize("kind", ["AXFR", "IXFR"])
def test_zones_are_not_transferred(kind: str) -> None:
    async def scenario(scene: Scene) -> None:
        asked = (
            query("example.com.", "SOA")
            .to_wire()
            .replace(b"\0\6\0\1", b"\0" + bytes([252 if kind == "AXFR" else 251]) + b"\0\1")
        )
        assert (
            dns.message.from_wire(await scene.upstream.resolve(asked), one_rr_per_rrset=True).rcode()
            == dns.rcode.REFUSED
        )
        assert not scene.script.seen

    play(Script(one=says(WWW)), scenario)


@pytest.mark.parametrize("packet", [b"", b"\1", b"\1\2\3", b"\1\2" + b"\0" * 10, b"\1\2\x80" + b"\0" * 20], ids=repr)
def test_a_malformed_query_gets_an_answer(packet: bytes) -> None:
    async def scenario(scene: Scene) -> None:
        assert len(await scene.upstream.resolve(packet)) == 12
        assert not scene.script.seen

    play(Script(one=says(WWW)), scenario)


def test_queries_fail_before_the_start_and_after_the_end() -> None:
    async def scenario(scene: Scene) -> None:
        scene.upstream._tasks = None
        assert code(await scene.ask()) == "SERVFAIL"

    play(Script(one=says(WWW)), scenario)


def test_running_out_of_sockets_says_nothing_of_the_server() -> None:
    def exhausted(asked: dns.message.Message, stream: bool) -> Packets:
        raise OSError(errno.EMFILE, "too many open files")

    async def scenario(scene: Scene) -> None:
        for number in range(5):
            assert code(await scene.ask(query(f"n{number}.example.com."))) == "SERVFAIL"
        assert all(state.up for state in scene.upstream.servers)

    play(Script(one=exhausted), scenario)


def test_letters_are_mixed_only_if_wanted_and_must_come_back() -> None:
    name = "a-name-with-many-letters-so-that-chance-shows.example.com."

    async def mixed(scene: Scene) -> None:
        assert code(await scene.ask(query(name))) == "NOERROR"
        sent = scene.script.seen[0][2].question[0].name.to_text()
        assert sent != name
        assert sent.lower() == name
        assert len(scene.script.seen) == 1

    play(Script(one=says(f"{name} 300 IN A 192.0.2.1")), mixed, mix_case=True)

    async def plain(scene: Scene) -> None:
        await scene.ask(query(name.upper()))
        assert scene.script.seen[0][2].question[0].name.to_text() == name

    play(Script(one=says(f"{name} 300 IN A 192.0.2.1")), plain)


def test_a_server_that_changes_letters_is_asked_by_tcp() -> None:
    def lowering(asked: dns.message.Message, stream: bool) -> Packets:
        wire = response(asked, [WWW]).to_wire()
        return [(0.01, wire[:12] + wire[12:].lower() if stream else wire.replace(wire[12:29], wire[12:29].lower()))]

    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NOERROR"
        assert [how for _, _, how in scene.script.asked()] == ["udp", "tcp"]

    play(Script(one=lowering), scenario, mix_case=True)

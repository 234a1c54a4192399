"""What is kept of an answer, for how long, and what stands in when nobody answers. All in virtual time."""

import asyncio
import dataclasses

import dns.flags
import dns.message
import pytest

from nodeagent.names.upstream.limits import CacheLimits, Limits

from .scripted import SOA, Packets, Scene, Script, code, play, query, refused, response, says, silent, texts

A = "www.example.com. {ttl} IN A 192.0.2.53"


def ttl_of(message: dns.message.Message) -> int:
    return message.answer[0].ttl


def test_a_ttl_counts_down_and_then_upstream_is_asked_again() -> None:
    async def scenario(scene: Scene) -> None:
        assert ttl_of(await scene.ask()) == 300
        await asyncio.sleep(100)
        assert ttl_of(await scene.ask(query("WWW.EXAMPLE.com."))) == 200
        await asyncio.sleep(199)
        assert ttl_of(await scene.ask()) == 1
        assert len(scene.script.seen) == 1
        await asyncio.sleep(1.5)
        assert ttl_of(await scene.ask()) == 300
        assert len(scene.script.seen) == 2
        assert scene.upstream.counts.hits == 2

    play(Script(one=says(A.format(ttl=300))), scenario)


def test_the_shortest_ttl_of_a_message_ends_it_and_each_counts_for_itself() -> None:
    chain = [
        "a.example.com. 120 IN CNAME b.example.com.",
        "b.example.com. 60 IN CNAME c.example.com.",
        "c.example.com. 300 IN A 192.0.2.1",
    ]

    async def scenario(scene: Scene) -> None:
        await scene.ask(query("a.example.com."))
        await asyncio.sleep(50)
        assert [rrset.ttl for rrset in (await scene.ask(query("a.example.com."))).answer] == [70, 10, 250]
        await asyncio.sleep(10)
        await scene.ask(query("a.example.com."))
        assert len(scene.script.seen) == 2

    play(Script(one=says(*chain)), scenario)


@pytest.mark.parametrize(
    ("ttl", "shown", "asked_again_after"),
    [
        pytest.param(5, 5, 5, id="short-ones-are-not-raised"),
        pytest.param(3600, 3600, 3600, id="the-longest"),
        pytest.param(86400, 3600, 3600, id="long"),
        pytest.param(0x7FFFFFFF, 3600, 3600, id="huge"),
    ],
)
def test_a_ttl_is_cut_to_an_hour(ttl: int, shown: int, asked_again_after: int) -> None:
    async def scenario(scene: Scene) -> None:
        assert ttl_of(await scene.ask()) == shown
        await asyncio.sleep(asked_again_after - 1)
        assert ttl_of(await scene.ask()) == 1
        await asyncio.sleep(1.1)
        await scene.ask()
        assert len(scene.script.seen) == 2

    play(Script(one=says(A.format(ttl=ttl))), scenario)


@pytest.mark.parametrize("ttl", [0, 0x80000000, 0xFFFFFFFF])
def test_a_ttl_of_none_or_with_its_highest_bit_is_not_kept(ttl: int) -> None:
    def answer(asked: dns.message.Message, stream: bool) -> Packets:
        wire = response(asked, [A.format(ttl=7)]).to_wire()
        return [(0.01, wire.replace(b"\0\0\0\7", ttl.to_bytes(4, "big")))]

    async def scenario(scene: Scene) -> None:
        for _ in range(3):
            assert ttl_of(await scene.ask()) == 0
        assert len(scene.script.seen) == 3

    play(Script(one=answer), scenario)


@pytest.mark.parametrize(
    ("soa", "kept"),
    [
        pytest.param("example.com. 3600 IN SOA a. b. 1 2 3 4 20", 20, id="minimum"),
        pytest.param("example.com. 10 IN SOA a. b. 1 2 3 4 300", 10, id="ttl"),
        pytest.param("example.com. 3600 IN SOA a. b. 1 2 3 4 300", 30, id="cut-to-30-s"),
        pytest.param("com. 3600 IN SOA a. b. 1 2 3 4 20", 20, id="of-a-zone-above"),
        pytest.param("example.net. 3600 IN SOA a. b. 1 2 3 4 300", 0, id="of-another-zone"),
        pytest.param("a.www.example.com. 3600 IN SOA a. b. 1 2 3 4 300", 0, id="of-a-zone-below"),
        pytest.param(None, 0, id="no-soa"),
    ],
)
@pytest.mark.parametrize("rcode", ["NXDOMAIN", "NOERROR"])
def test_a_negative_answer_is_kept_as_long_as_its_soa_says(soa: str | None, kept: int, rcode: str) -> None:
    """RFC 2308 §5: the lesser of TTL and MINIMUM; none without a SOA."""

    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == rcode
        await asyncio.sleep(max(0, kept - 1))
        answer = await scene.ask()
        assert code(answer) == rcode
        assert len(scene.script.seen) == (1 if kept else 2)
        assert [rrset.to_text().split(" ")[0] for rrset in answer.authority] == (
            [soa.split(" ")[0]] if kept and soa else []
        )
        await asyncio.sleep(1.5)
        await scene.ask()
        assert len(scene.script.seen) == (2 if kept else 3)

    play(Script(one=says(authority=[soa] if soa else [], rcode=rcode)), scenario)


def test_a_cname_to_nothing_ends_with_the_shorter_of_both() -> None:
    alias = "www.example.com. 12 IN CNAME gone.example.com."

    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == "NXDOMAIN"
        await asyncio.sleep(11)
        assert texts(await scene.ask()) == ["www.example.com. 1 IN CNAME gone.example.com."]
        await asyncio.sleep(1.1)
        await scene.ask()
        assert len(scene.script.seen) == 2

    play(Script(one=says(alias, authority=[SOA], rcode="NXDOMAIN")), scenario)


@pytest.mark.parametrize(
    "behaviour", [says(rcode="SERVFAIL"), says(rcode="REFUSED"), refused], ids=["servfail", "refused", "nobody"]
)
def test_a_failure_is_remembered_for_a_second(behaviour: object) -> None:
    async def scenario(scene: Scene) -> None:
        first = code(await scene.ask())
        count = len(scene.script.seen)
        await asyncio.sleep(0.9)
        assert code(await scene.ask()) == first
        assert len(scene.script.seen) == count
        await asyncio.sleep(0.2)
        await scene.ask()
        assert len(scene.script.seen) > count

    play(Script(one=behaviour), scenario)  # type: ignore[arg-type]


def test_a_stale_answer_stands_in_after_1_8_s_and_the_new_one_is_kept() -> None:
    """RFC 8767 §5, the client response timer."""
    script = Script(one=says(A.format(ttl=5)))

    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await asyncio.sleep(100)
        script.behaviours[next(iter(script.behaviours))] = says("www.example.com. 300 IN A 192.0.2.99", after=2.5)
        began = scene.now
        stale = await scene.ask()
        assert texts(stale) == ["www.example.com. 30 IN A 192.0.2.53"]
        assert scene.now - began == pytest.approx(1.8)
        await asyncio.sleep(3)
        assert texts(await scene.ask()) == ["www.example.com. 298 IN A 192.0.2.99"]
        assert scene.upstream.counts.stale == 1

    play(script, scenario)


@pytest.mark.parametrize(
    "trouble",
    [refused, says(rcode="SERVFAIL"), says(rcode="REFUSED"), says(rcode="FORMERR")],
    ids=["nobody", "SERVFAIL", "REFUSED", "FORMERR"],
)
def test_a_stale_answer_stands_in_for_a_failure_and_nobody_is_asked_for_30_s(trouble: object) -> None:
    script = Script(one=says(A.format(ttl=5)))

    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await asyncio.sleep(100)
        script.behaviours[next(iter(script.behaviours))] = trouble  # type: ignore[assignment]
        assert texts(await scene.ask()) == ["www.example.com. 30 IN A 192.0.2.53"]
        await asyncio.sleep(1)
        asked = len(scene.script.seen)
        await asyncio.sleep(26)
        began = scene.now
        assert texts(await scene.ask()) == ["www.example.com. 30 IN A 192.0.2.53"]
        assert scene.now == began
        assert len(scene.script.seen) == asked
        await asyncio.sleep(4)
        script.behaviours[next(iter(script.behaviours))] = says("www.example.com. 300 IN A 192.0.2.99")
        await scene.ask()
        await asyncio.sleep(1.5)
        assert texts(await scene.ask()) == ["www.example.com. 299 IN A 192.0.2.99"]

    play(script, scenario)


def test_with_all_servers_down_a_stale_answer_comes_at_once() -> None:
    script = Script(one=says(A.format(ttl=5)))

    async def scenario(scene: Scene) -> None:
        await scene.ask()
        script.behaviours[next(iter(script.behaviours))] = silent
        await asyncio.gather(*(scene.ask(query(f"n{n}.example.com.")) for n in range(3)))
        assert not any(state.up for state in scene.upstream.servers)
        await asyncio.sleep(10)
        began = scene.now
        assert texts(await scene.ask()) == ["www.example.com. 30 IN A 192.0.2.53"]
        assert scene.now == began

    play(script, scenario)


def test_a_stale_answer_is_kept_for_a_day_and_no_longer() -> None:
    script = Script(one=says(A.format(ttl=5)))

    async def scenario(scene: Scene) -> None:
        await scene.ask()
        script.behaviours[next(iter(script.behaviours))] = refused
        await asyncio.sleep(86_400)
        assert code(await scene.ask()) == "NOERROR"
        await asyncio.sleep(10)
        assert code(await scene.ask()) == "SERVFAIL"

    play(script, scenario)


@pytest.mark.parametrize("rcode", ["NXDOMAIN", "NOERROR"])
def test_a_negative_answer_never_stands_in(rcode: str) -> None:
    """Else a name that came into being stays missing for as long as upstream is away (coredns#3586)."""
    script = Script(one=says(authority=[SOA], rcode=rcode))

    async def scenario(scene: Scene) -> None:
        assert code(await scene.ask()) == rcode
        await asyncio.sleep(31)
        script.behaviours[next(iter(script.behaviours))] = refused
        assert code(await scene.ask()) == "SERVFAIL"
        script.behaviours[next(iter(script.behaviours))] = says(A.format(ttl=5))
        await asyncio.sleep(1.1)
        assert code(await scene.ask()) == "NOERROR"

    play(script, scenario)


@pytest.mark.parametrize("soa", [[SOA], []], ids=["with-soa", "without"])
def test_a_name_that_was_removed_does_not_come_back_as_a_stale_one(soa: list[str]) -> None:
    script = Script(one=says(A.format(ttl=5)))

    async def scenario(scene: Scene) -> None:
        await scene.ask()
        await asyncio.sleep(10)
        script.behaviours[next(iter(script.behaviours))] = says(authority=soa, rcode="NXDOMAIN")
        assert code(await scene.ask()) == "NXDOMAIN"
        script.behaviours[next(iter(script.behaviours))] = refused
        await asyncio.sleep(60)
        assert code(await scene.ask()) == "SERVFAIL"

    play(script, scenario)


def test_entries_are_bounded_and_the_least_asked_go_first() -> None:
    limits = Limits(cache=dataclasses.replace(CacheLimits(), entries=3))

    def each(asked: dns.message.Message, stream: bool) -> Packets:
        return [(0.01, response(asked, [f"{asked.question[0].name} 300 IN A 192.0.2.1"]).to_wire())]

    async def scenario(scene: Scene) -> None:
        for name in ("a.", "b.", "c.", "a.", "d."):
            await scene.ask(query(name))
        assert scene.upstream.cached[0] == 3
        asked = len(scene.script.seen)
        await scene.ask(query("a."))
        assert len(scene.script.seen) == asked
        await scene.ask(query("b."))
        assert len(scene.script.seen) == asked + 1

    play(Script(one=each), scenario, limits=limits)


def test_bytes_are_bounded() -> None:
    limits = Limits(cache=dataclasses.replace(CacheLimits(), size=40_000))
    text = " ".join(['"' + "x" * 250 + '"'] * 40)

    def each(asked: dns.message.Message, stream: bool) -> Packets:
        big = response(asked, [f"{asked.question[0].name} 300 IN TXT {text}"]).to_wire(max_size=65535)
        return [(0.01, big)]

    async def scenario(scene: Scene) -> None:
        for number in range(20):
            assert len(await scene.upstream.resolve(query(f"n{number}.", "TXT").to_wire())) > 10_000
        entries, size = scene.upstream.cached
        assert entries == 3
        assert size <= 40_000
        await scene.ask(query("n19.", "TXT"))
        assert len(scene.script.seen) == 20, "the last one is still there"

    play(Script(one=each), scenario, limits=limits)


def test_forgotten_entries_give_their_bytes_back() -> None:
    script = Script(one=says(A.format(ttl=5)))

    async def scenario(scene: Scene) -> None:
        for _ in range(5):
            await scene.ask()
            await asyncio.sleep(6)
        assert scene.upstream.cached[1] < 1000
        script.behaviours[next(iter(script.behaviours))] = says(rcode="NXDOMAIN")
        await scene.ask()
        assert scene.upstream.cached == (0, 0)

    play(script, scenario)


def test_signatures_are_kept_apart_from_answers_without() -> None:
    def signed(asked: dns.message.Message, stream: bool) -> Packets:
        signature = "www.example.com. 300 IN RRSIG A 8 3 300 20300101000000 20200101000000 1 example.com. AAAA"
        wants = asked.ednsflags & dns.flags.DO
        return [(0.01, response(asked, [A.format(ttl=300), *([signature] if wants else [])]).to_wire())]

    async def scenario(scene: Scene) -> None:
        assert len(texts(await scene.ask())) == 1
        assert len(texts(await scene.ask(query(use_edns=0, want_dnssec=True)))) == 2
        assert len(texts(await scene.ask())) == 1
        assert len(scene.script.seen) == 2

    play(Script(one=signed), scenario)

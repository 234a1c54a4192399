"""One client's many names push out no other client's: neither what is kept nor what is asked. All in virtual time."""

import asyncio
import dataclasses

import dns.message
import pytest

from nodeagent.names.upstream.limits import AskLimits, CacheLimits, Limits

from .scripted import SOA, Packets, Scene, Script, code, play, query, response

GREEDY, OTHER = "10.244.1.2", "10.244.1.3"
MANY = 400
LIMITS = Limits(cache=dataclasses.replace(CacheLimits(), entries=MANY // 4, denials=MANY // 4))


def resolver(asked: dns.message.Message, stream: bool) -> Packets:
    """By the first label: an address, a long text, NXDOMAIN with a SOA, or silence."""
    name = asked.question[0].name.to_text()
    if name.startswith("silent"):
        return []
    if name.startswith("missing"):
        return [(0.01, response(asked, authority=[SOA], rcode="NXDOMAIN").to_wire())]
    if name.startswith("long"):
        text = " ".join(['"' + "x" * 250 + '"'] * 40)
        return [(0.01, response(asked, [f"{name} 300 IN TXT {text}"]).to_wire(max_size=65535))]
    return [(0.01, response(asked, [f"{name} 300 IN A 192.0.2.1"]).to_wire())]


async def flood(scene: Scene, kind: str, client: str = GREEDY) -> None:
    for number in range(MANY):
        await scene.ask(query(f"{kind}{number}.example.com."), client)


@pytest.mark.parametrize("theirs", ["www.example.com.", "missing.example.com."])
@pytest.mark.parametrize("kind", ["missing", "found"])
def test_answers_to_other_clients_stay_in_the_cache(kind: str, theirs: str) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(query(theirs), OTHER)
        await flood(scene, kind)
        asked = len(scene.script.seen)
        await scene.ask(query(theirs), OTHER)
        assert len(scene.script.seen) == asked
        await scene.ask(query(f"{kind}0.example.com."), GREEDY)
        assert len(scene.script.seen) == asked + 1, "the control: the client's own oldest answer is gone"

    play(Script(one=resolver), scenario, limits=LIMITS)


def test_denials_push_out_no_answer_of_the_same_client() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.ask(query("www.example.com."), GREEDY)
        await flood(scene, "missing")
        asked = len(scene.script.seen)
        await scene.ask(query("www.example.com."), GREEDY)
        assert len(scene.script.seen) == asked

    play(Script(one=resolver), scenario, limits=LIMITS)


def test_long_answers_push_out_their_own_clients() -> None:
    """Shares are measured in bytes: few long answers are more than many short ones."""
    limits = Limits(cache=dataclasses.replace(CacheLimits(), size=200_000))

    async def scenario(scene: Scene) -> None:
        short = [query(f"n{number}.example.com.") for number in range(50)]
        for one in short:
            await scene.ask(one, OTHER)
        for number in range(100):
            await scene.ask(query(f"long{number}.example.com.", "TXT"), GREEDY)
        asked = len(scene.script.seen)
        for one in short:
            await scene.ask(one, OTHER)
        assert len(scene.script.seen) == asked
        assert scene.upstream.cached[1] <= 200_000

    play(Script(one=resolver), scenario, limits=limits)


@pytest.mark.parametrize("greedy", [[GREEDY], [f"fd00:1::{number:x}" for number in range(1, 200)]], ids=["4", "6"])
def test_unanswered_questions_of_one_client_leave_room_for_others(greedy: list[str]) -> None:
    """A tenth of the real bound, and of 600 questions a second that nobody answers; the second client has a whole /64."""
    limits = Limits(ask=dataclasses.replace(AskLimits(), questions=100))
    failed = []

    async def scenario(scene: Scene) -> None:
        asked = []
        for number in range(60 * 10):
            name = query(f"silent{number}.example.com.")
            asked.append(asyncio.ensure_future(scene.ask(name, greedy[number % len(greedy)])))
            if not number % 10:
                failed.append(asyncio.ensure_future(scene.ask(query(f"n{number}.example.com."), OTHER)))
            await asyncio.sleep(1 / 60)
        assert [code(await one) for one in failed] == ["NOERROR"] * 60
        assert scene.upstream.counts.full > 100, "the control: there was no room for all"
        await asyncio.gather(*asked)

    play(Script(one=resolver), scenario, limits=limits)

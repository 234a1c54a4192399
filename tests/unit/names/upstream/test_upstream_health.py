"""Servers that do not answer are asked last, probed, and asked first again when they are back. In virtual time."""

import asyncio
from itertools import pairwise

import dns.message
import pytest

from nodeagent.names.upstream.limits import HealthLimits
from nodeagent.names.upstream.upstream_address import Server
from nodeagent.names.upstream.upstream_health import Health
from nodeagent.names.upstream.upstream_question import Asked
from nodeagent.wire.dns.codes import Rcode
from nodeagent.wire.dns.domain_names import from_text
from nodeagent.wire.dns.query import question_of

from .scripted import ONE, SOA, TWO, Scene, Script, code, play, query, refused, says, silent

ASKED = Asked(question_of(from_text("www.example.com."), 1))
A = "www.example.com. 0 IN A 192.0.2.53"


def up(scene: Scene) -> list[bool]:
    return [state.up for state in scene.upstream.servers]


@pytest.mark.parametrize("trouble", [silent, refused], ids=["silent", "nobody"])
def test_a_server_that_fails_three_times_is_asked_last_until_a_probe_is_answered(trouble: object) -> None:
    script = Script(one=trouble, two=says(A))  # type: ignore[arg-type]

    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(5)
        await scene.ask()
        await asyncio.sleep(0)
        await scene.ask()
        assert up(scene) == [False, True]
        before = len(script.seen)
        began = scene.now
        assert code(await scene.ask()) == "NOERROR"
        assert scene.now - began == pytest.approx(0.01), "no wait for the dead one"
        assert [server for _, server, _, _ in script.seen[before:]] == [TWO]
        script.behaviours[ONE] = says(A)
        await asyncio.sleep(31)
        assert up(scene) == [True, True]
        before = len(script.seen)
        await scene.ask()
        assert [server for _, server, _, _ in script.seen[before:]] == [ONE]

    play(script, scenario)


def test_failures_between_answers_do_not_add_up() -> None:
    health = Health(HealthLimits())
    health.set_servers([ONE], 0)
    for _ in range(5):
        health.failed(ONE, ASKED, 1)
        health.failed(ONE, ASKED, 1)
        health.answered(ONE, ASKED, Rcode.NOERROR, 0.1, 1)
    assert health.is_up(ONE)
    for _ in range(3):
        health.failed(ONE, ASKED, 1)
    assert not health.is_up(ONE)


def test_probes_of_a_dead_server_become_rarer() -> None:
    script = Script(one=refused)

    async def scenario(scene: Scene) -> None:
        for number in range(3):
            await scene.ask(query(f"n{number}.example.com."))
        await asyncio.sleep(200)
        times = [at for at, _, _ in script.probes]
        gaps = [round(later - earlier, 1) for earlier, later in pairwise(times[1:])]
        assert gaps[:8] == [0.5, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]

    play(script, scenario)


def test_if_all_are_down_all_are_asked_still() -> None:
    script = Script(one=refused, two=refused)

    async def scenario(scene: Scene) -> None:
        for number in range(3):
            await scene.ask(query(f"n{number}.example.com."))
        assert up(scene) == [False, False]
        script.behaviours[TWO] = says(A)
        assert code(await scene.ask()) == "NOERROR"
        assert up(scene) == [False, True]

    play(script, scenario)


def test_every_new_server_is_probed_once_with_a_name_nobody_can_guess() -> None:
    script = Script(one=says(A), two=says(A))

    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(100)
        assert [server for _, server, _ in script.probes] == [ONE, TWO]
        names = [dns.message.from_wire(packet).question[0].name.to_text() for _, _, packet in script.probes]
        assert all(name.endswith(".loop-probe.nodeagent.invalid.") for name in names)
        assert len({name[:32] for name in names}) == 2

    play(script, scenario)


def test_one_lost_probe_of_a_new_server_means_nothing() -> None:
    script = Script(one=silent)

    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(10)
        assert up(scene) == [True]
        assert len(script.probes) == 1

    play(script, scenario)


def test_a_server_that_leads_back_to_us_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(one=says(authority=[SOA], rcode="NXDOMAIN"), two=says(A))

    async def scenario(scene: Scene) -> None:
        async def back(server: Server, packet: bytes) -> None:
            """A forwarder that has us as its resolver: what comes to it, comes to us with another id."""
            if server == ONE:
                asked = dns.message.from_wire(packet)
                asked.id ^= 1
                assert code(await scene.ask(asked)) == "REFUSED"

        script.probed = back
        scene.upstream._probes.set_servers([])
        scene.upstream._probes.set_servers([ONE, TWO])
        await asyncio.sleep(1)
        assert [state.loops for state in scene.upstream.servers] == [True, False]
        assert up(scene) == [False, True]
        assert code(await scene.ask()) == "NOERROR"
        assert {server for _, server, _, _ in script.seen} == {TWO}
        assert caplog.text.count("sends our own questions back") == 1
        await asyncio.sleep(300)
        assert [state.loops for state in scene.upstream.servers] == [True, False]
        assert caplog.text.count("sends our own questions back") == 1, "said once"
        script.probed = None
        await asyncio.sleep(31)
        assert [state.loops for state in scene.upstream.servers] == [False, False], "seen to be mended"
        assert len(scene.script.seen) == 1

    play(script, scenario)


def test_with_loops_only_names_fail_at_once_and_known_ones_stay() -> None:
    script = Script(one=says("www.example.com. 5 IN A 192.0.2.53"))

    async def scenario(scene: Scene) -> None:
        await scene.ask()

        async def back(server: Server, packet: bytes) -> None:
            await scene.ask(dns.message.from_wire(packet))

        script.probed = back
        scene.upstream._probes.set_servers([])
        scene.upstream._probes.set_servers([ONE])
        await asyncio.sleep(10)
        began = scene.now
        assert code(await scene.ask(query("other.example.com."))) == "SERVFAIL"
        assert code(await scene.ask()) == "NOERROR", "a stale answer"
        assert scene.now == began
        assert len(script.seen) == 1

    play(script, scenario)


def test_without_a_loop_the_same_servers_are_asked() -> None:
    script = Script(one=says(authority=[SOA], rcode="NXDOMAIN"), two=says(A))

    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        assert code(await scene.ask()) == "NXDOMAIN"
        assert {server for _, server, _, _ in script.seen} == {ONE}

    play(script, scenario)


def test_a_probe_of_another_agent_is_passed_on() -> None:
    """Two agents that forward to each other see their own probes only."""
    script = Script(one=says(A))

    async def scenario(scene: Scene) -> None:
        await asyncio.sleep(1)
        before = len(script.probes)
        assert (
            code(await scene.ask(query("0123456789abcdef0123456789abcdef.loop-probe.nodeagent.invalid."))) == "NXDOMAIN"
        )
        assert len(script.probes) == before + 1
        assert up(scene) == [True]

    play(script, scenario)


def test_a_loop_does_not_multiply_questions() -> None:
    """A query that comes back to us waits for the same answer as the first one."""
    script = Script()

    async def scenario(scene: Scene) -> None:
        returned: list[asyncio.Task[dns.message.Message]] = []

        def back(asked: dns.message.Message, stream: bool) -> list[tuple[float, bytes]]:
            asked.id ^= 1
            returned.append(asyncio.ensure_future(scene.ask(asked)))
            return []

        script.behaviours[ONE] = back
        assert code(await scene.ask()) == "SERVFAIL"
        assert len(script.seen) == 3
        assert {code(await task) for task in returned} == {"SERVFAIL"}

    play(script, scenario, servers=[ONE])

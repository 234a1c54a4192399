"""What is wrong with a server is found while it is asked, and forgotten when it is well; what is wrong with a domain is not the server's
fault. In virtual time."""

import asyncio
from collections.abc import Callable

import dns.message
import pytest

from .scripted import ONE, SOA, TWO, Behaviour, Packets, Scene, Script, play, query, refused, response, says, silent

WELL = says(authority=[SOA], rcode="NXDOMAIN")
IN_TIME_SECONDS = 9.0
CURED_SECONDS = 31.0


def garbage(asked: dns.message.Message, stream: bool) -> Packets:
    return [(0.01, asked.to_wire()[:2] + b"garbage")]


def of_another(asked: dns.message.Message, stream: bool) -> Packets:
    other = query("other.example.com.")
    other.id = asked.id
    return [(0.01, response(other).to_wire())]


def cut_off_and_no_tcp(asked: dns.message.Message, stream: bool) -> Packets:
    if stream:
        raise ConnectionRefusedError(111, "refused")
    return [(0.01, response(asked, flags="QR RD RA TC").to_wire())]


def cut_off_and_silent_by_tcp(asked: dns.message.Message, stream: bool) -> Packets:
    return [] if stream else cut_off_and_no_tcp(asked, stream)


def by_tcp_only(asked: dns.message.Message, stream: bool) -> Packets:
    return WELL(asked, stream) if stream else []


FAULTS = {
    "silent": (silent, "silent", ""),
    "nobody listens": (refused, "silent", "Connection refused"),
    "SERVFAIL": (says(rcode="SERVFAIL"), "failing", "SERVFAIL"),
    "REFUSED": (says(rcode="REFUSED"), "failing", "REFUSED"),
    "an answer after three seconds": (says(rcode="NXDOMAIN", authority=[SOA], after=3.0), "slow", "3 s"),
    "garbage": (garbage, "malformed", ""),
    "answers to another question": (of_another, "malformed", ""),
    "no TCP": (cut_off_and_no_tcp, "no-tcp", "Connection refused"),
    "silence by TCP": (cut_off_and_silent_by_tcp, "no-tcp", ""),
    "no UDP": (by_tcp_only, "silent", ""),
}


def faults(scene: Scene) -> list[tuple[str, str, str]]:
    return [(one.server, one.kind, one.detail) for one in scene.upstream.figures().faults]


async def pods_ask(
    scene: Scene, seconds: float, name: Callable[[int], str] = lambda n: f"n{n}.zone{n}.example."
) -> None:
    """Asks for another name each 0.4 s, without waiting for the answers."""
    tasks = []
    for number in range(round(seconds / 0.4)):
        tasks.append(asyncio.create_task(scene.ask(query(name(number)))))
        await asyncio.sleep(0.4)
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in FAULTS.items()])
def test_a_fault_of_the_only_server_is_found_in_time_and_forgotten(fault: tuple[Behaviour, str, str]) -> None:
    bad, kind, detail = fault
    script = Script(one=WELL)
    script.answers_probes = False

    async def scenario(scene: Scene) -> None:
        await pods_ask(scene, 20)
        assert faults(scene) == []
        script.behaviours[ONE] = bad
        await pods_ask(scene, IN_TIME_SECONDS)
        assert faults(scene) == [(str(ONE), kind, detail)]
        useless = kind not in ("slow", "no-tcp")
        assert scene.upstream.figures().unresolved == ((".",) if useless else ())
        assert scene.upstream.figures().down == ((str(ONE),) if kind == "silent" else ())
        script.behaviours[ONE] = WELL
        await asyncio.sleep(CURED_SECONDS)
        assert faults(scene) == [], "without a question of a client"

    play(script, scenario)


@pytest.mark.parametrize("bad_one", [ONE, TWO], ids=["the first", "the second"])
@pytest.mark.parametrize("fault", [pytest.param(fault, id=name) for name, fault in FAULTS.items()])
def test_one_of_two_is_named_alone(fault: tuple[Behaviour, str, str], bad_one: object) -> None:
    """Nobody asks the second while the first answers, so it gets a question of others now and then."""
    bad, kind, _ = fault
    script = Script(one=WELL, two=WELL)
    script.answers_probes = False

    async def scenario(scene: Scene) -> None:
        await pods_ask(scene, 35)
        assert faults(scene) == []
        script.behaviours[bad_one] = bad  # type: ignore[index]
        await pods_ask(scene, IN_TIME_SECONDS if bad_one == ONE else 45)
        assert [one[:2] for one in faults(scene)] == [(str(bad_one), kind)]
        assert scene.upstream.figures().unresolved == ()
        script.behaviours[ONE] = script.behaviours[TWO] = bad
        await pods_ask(scene, IN_TIME_SECONDS)
        assert {one[:2] for one in faults(scene)} == {(str(ONE), kind), (str(TWO), kind)}
        script.behaviours[ONE] = script.behaviours[TWO] = WELL
        await asyncio.sleep(CURED_SECONDS)
        assert faults(scene) == []

    play(script, scenario)


def only_for(suffix: str, bad: Behaviour) -> Behaviour:
    return lambda asked, stream: (bad if asked.question[0].name.to_text().endswith(suffix) else WELL)(asked, stream)


@pytest.mark.parametrize(
    "bad", [silent, says(rcode="SERVFAIL"), says(rcode="NOERROR", after=3.0)], ids=["silent", "error", "slow"]
)
@pytest.mark.parametrize("others", [True, False], ids=["among others", "alone"])
def test_a_domain_that_fails_is_no_fault_of_the_server(bad: Behaviour, others: bool) -> None:
    script = Script(one=only_for("broken.example.", bad))
    script.answers_probes = False

    async def scenario(scene: Scene) -> None:
        await pods_ask(scene, 5, lambda n: f"n{n}.broken.example." if others and n % 2 else f"n{n}.well.example.")
        for _ in range(20):
            await pods_ask(scene, 1, lambda n: f"m{n}{scene.now}.broken.example.".replace(".", "", 1))
            assert faults(scene) == []

    play(script, scenario)


@pytest.mark.parametrize("bad", [silent, says(rcode="SERVFAIL")], ids=["silent", "error"])
def test_several_domains_that_fail_are_no_fault_of_the_second_server(bad: Behaviour) -> None:
    """It is asked about those alone, because the first one answers everything else."""
    each = only_for("broken.", bad)
    script = Script(one=each, two=each)
    script.answers_probes = False

    async def scenario(scene: Scene) -> None:
        for second in range(30):
            await pods_ask(scene, 1, lambda n: f"n.zone{second * 2 + n}.{'broken' if n % 2 else 'well'}.")  # noqa: B023
            assert faults(scene) == []

    play(script, scenario)


@pytest.mark.parametrize("bad", [silent, says(rcode="SERVFAIL")], ids=["silent", "error"])
def test_three_domains_that_fail_and_a_name_that_is_kept_are_a_fault(bad: Behaviour) -> None:
    """A resolver that has lost its own way out still has what it asked for lately."""
    script = Script(one=WELL)

    async def scenario(scene: Scene) -> None:
        await pods_ask(scene, 5, lambda _: "www.kept.example.")
        script.behaviours[ONE] = lambda asked, stream: (
            WELL if asked.question[0].name.to_text().endswith("kept.example.") else bad
        )(asked, stream)
        await pods_ask(scene, IN_TIME_SECONDS)
        assert [kind for _, kind, _ in faults(scene)] == ["failing" if bad is not silent else "silent"]
        script.behaviours[ONE] = WELL
        await asyncio.sleep(CURED_SECONDS)
        assert faults(scene) == []

    play(script, scenario)


def test_a_server_for_some_zones_may_refuse_all_others() -> None:
    """A server of a stub zone, and one before a resolver for everything else."""
    partial = Script(one=says(rcode="REFUSED"), two=WELL)
    partial.behaviours[ONE] = lambda asked, stream: (
        WELL if asked.question[0].name.to_text().endswith("corp.example.") else says(rcode="REFUSED")
    )(asked, stream)
    partial.answers_probes = False

    async def scenario(scene: Scene) -> None:
        for _ in range(30):
            await pods_ask(
                scene, 1, lambda n: f"n{n}{scene.now:.0f}.corp.example." if n % 3 else f"n{n}{scene.now:.0f}.com."
            )
            assert faults(scene) == []

    play(partial, scenario)
    play(partial, scenario, servers=[TWO], zones={"corp.example": [ONE]})


def test_a_server_that_never_answered_well_is_named_after_three_domains() -> None:
    script = Script(one=says(rcode="REFUSED"))
    script.answers_probes = False

    async def scenario(scene: Scene) -> None:
        await pods_ask(scene, 20, lambda n: f"n{n}.one.example.")
        assert faults(scene) == [], "it may be one domain"
        await pods_ask(scene, IN_TIME_SECONDS)
        assert faults(scene) == [(str(ONE), "failing", "REFUSED")]

    play(script, scenario)


def test_failed_servers_of_a_zone_are_reported_with_that_zone() -> None:
    script = Script(one=WELL, two=WELL)

    async def scenario(scene: Scene) -> None:
        script.behaviours[TWO] = silent
        await pods_ask(scene, IN_TIME_SECONDS, lambda n: f"n{n}.corp.example." if n % 2 else f"n{n}.com.")
        assert scene.upstream.figures().unresolved == ("corp.example.",)

    play(script, scenario, servers=[ONE], zones={"corp.example": [TWO]})

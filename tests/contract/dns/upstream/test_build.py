"""From text to answers."""

import asyncio
from contextlib import suppress

import pytest

from nodeagent.dns.upstream.build import build_upstream
from tests.unit.dns.upstream.scripted import says, texts

from .loopback import Resolver, ask


def test_configured_servers_and_stub_zones_are_asked() -> None:
    async def main() -> None:
        usual = Resolver(says("www.example.com. 300 IN A 192.0.2.1", after=0))
        corp = Resolver(says("www.corp.example. 300 IN A 192.0.2.2", after=0))
        async with usual.listening() as one, corp.listening("::1") as two:
            upstream = build_upstream([str(one)], {"corp.example": [str(two)]}, listening=())
            running = asyncio.create_task(upstream.run())
            await asyncio.sleep(0)
            assert texts(await ask(upstream)) == ["www.example.com. 300 IN A 192.0.2.1"]
            assert texts(await ask(upstream, "www.corp.example.")) == ["www.corp.example. 300 IN A 192.0.2.2"]
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    asyncio.run(main())


def test_what_is_no_server_is_said() -> None:
    with pytest.raises(ValueError, match=r"'dns\.example' has no IP address"):
        build_upstream(["dns.example"], {}, listening=())
    with pytest.raises(ValueError, match="zone corp has no server"):
        build_upstream([], {"corp": []}, listening=())

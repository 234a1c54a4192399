"""From text to answers."""

import asyncio
from contextlib import suppress

import pytest

from nodeagent.names.feed.feed_messages import Settings
from nodeagent.names.server.__main__ import make_upstream
from nodeagent.names.upstream.node_resolvers import NodeResolvers
from nodeagent.names.upstream.stub_zones import StubZones
from tests.unit.names.upstream.scripted import says, silent, texts

from .loopback import Resolver, ask


def test_the_process_asks_the_configured_servers_of_a_stub_zone() -> None:
    """The second of them when the first does not answer; of two zones the longer one's."""

    async def main() -> None:
        deaf = Resolver(silent)
        usual = Resolver(says("www.example.com. 300 IN A 192.0.2.1", after=0))
        consul = Resolver(says("web.consul.local. 300 IN A 192.0.2.2", after=0))
        inner = Resolver(says("web.inner.consul.local. 300 IN A 192.0.2.3", after=0))
        async with (
            usual.listening() as one,
            deaf.listening() as two,
            consul.listening() as three,
            inner.listening() as four,
        ):
            stubs = (("consul.local", str(two)), ("consul.local", str(three)), ("inner.consul.local", str(four)))
            upstream = make_upstream(Settings(upstreams=(str(one),), stub_zones=stubs), NodeResolvers())
            running = asyncio.create_task(upstream.run())
            await asyncio.sleep(0)
            for name, address in (("www.example.com.", 1), ("web.consul.local.", 2), ("web.inner.consul.local.", 3)):
                assert texts(await ask(upstream, name)) == [f"{name} 300 IN A 192.0.2.{address}"]
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    asyncio.run(main())


def test_an_entry_that_is_not_a_server_is_reported() -> None:
    with pytest.raises(ValueError, match=r"'dns\.example' has no IP address"):
        make_upstream(Settings(upstreams=("dns.example",)), NodeResolvers())
    with pytest.raises(ValueError, match="zone corp has no server"):
        StubZones({"corp": ()})

"""Resolvers that people have, dnsmasq and unbound, in a network namespace; unbound where it is installed."""

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from nodeagent.names.upstream.resolve import Upstream
from nodeagent.names.upstream.upstream_address import Server
from tests.contract.dataplane.conftest import Namespace
from tests.unit.names.upstream.scripted import code, texts

from .loopback import Ourselves, ask, asking, until

pytestmark = pytest.mark.kernel

TEXT = "x" * 200
FIRST, SECOND, OURS = "127.0.0.1", "127.0.0.2", "127.0.0.3"

DNSMASQ = (
    "dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --pid-file= --user=root --port=53 "
    "--bind-interfaces --local=/example.com/ --host-record=www.example.com,192.0.2.53,2001:db8::53,300 "
    "--cname=alias.example.com,www.example.com,120 "
)
DNSMASQ += " ".join(f"--txt-record=big.example.com,{TEXT}{number}" for number in range(30))

UNBOUND = """
server:
  interface: {address}
  port: 53
  access-control: 127.0.0.0/8 allow
  do-daemonize: no
  chroot: ""
  username: ""
  directory: ""
  pidfile: ""
  use-syslog: no
  logfile: "/dev/null"
  module-config: "iterator"
  local-zone: "invalid." static
  local-zone: "example.com." static
  local-data: "example.com. 3600 IN SOA ns1.example.com. root.example.com. 1 7200 3600 1209600 25"
  local-data: "www.example.com. 300 IN A 192.0.2.53"
  local-data: "www.example.com. 300 IN AAAA 2001:db8::53"
  local-data: "alias.example.com. 120 IN CNAME www.example.com."
"""
UNBOUND += "".join(f'  local-data: "big.example.com. 300 IN TXT {TEXT}{number}"\n' for number in range(30))

needs_unbound = pytest.mark.skipif(not shutil.which("unbound"), reason="unbound is not installed")
PROGRAMS = ["dnsmasq", pytest.param("unbound", marks=needs_unbound)]


class Resolvers:
    """Programs in a namespace of their own, each at its address; all are gone at the end."""

    def __init__(self, namespace: Namespace, directory: Path) -> None:
        self._namespace = namespace
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, program: str, address: str, *options: str) -> "subprocess.Popen[bytes]":
        """Started, and taking connections."""
        if program == "dnsmasq":
            command = [*DNSMASQ.split(), f"--listen-address={address}", *options]
        else:
            path = self._directory / f"{address}.conf"
            path.write_text(UNBOUND.format(address=address))
            command = ["unbound", "-d", "-p", "-c", str(path)]

        def begin() -> "subprocess.Popen[bytes]":
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._running.append(process)
            deadline = time.monotonic() + 60
            while True:
                try:
                    socket.create_connection((address, 53), timeout=10).close()
                except OSError:
                    assert process.poll() is None, f"{program} ended with {process.returncode}"
                    assert time.monotonic() < deadline, f"{program} does not listen"
                    time.sleep(0.01)
                else:
                    return process

        return self._namespace.run(begin)

    def play(self, servers: list[str], scenario: Callable[[Upstream], Coroutine[None, None, None]]) -> None:
        """Run a scenario in the namespace."""

        async def main() -> None:
            async with asking([Server(address) for address in servers]) as upstream, asyncio.timeout(60):
                await scenario(upstream)

        self._namespace.run(lambda: asyncio.run(main()))

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def resolvers(tmp_path: Path) -> Iterator[Resolvers]:
    namespace = Namespace()
    namespace.shell("ip link set lo up")
    made = Resolvers(namespace, tmp_path)
    yield made
    made.end()
    namespace.close()


@pytest.mark.parametrize("program", PROGRAMS)
def test_names_are_what_the_resolver_says(resolvers: Resolvers, program: str) -> None:
    resolvers.start(program, FIRST)

    async def scenario(upstream: Upstream) -> None:
        assert texts(await ask(upstream)) == ["www.example.com. 300 IN A 192.0.2.53"]
        assert texts(await ask(upstream, kind="AAAA")) == ["www.example.com. 300 IN AAAA 2001:db8::53"]
        alias = texts(await ask(upstream, "ALIAS.example.com.", "CNAME"))
        assert alias == ["ALIAS.example.com. 120 IN CNAME www.example.com."]
        nodata = await ask(upstream, kind="MX")
        assert (code(nodata), texts(nodata)) == ("NOERROR", [])
        assert code(await ask(upstream, "missing.example.com.")) == "NXDOMAIN"
        assert len(texts(await ask(upstream, "big.example.com.", "TXT", use_edns=0))) == 30, "by TCP"
        before = upstream.counts.asked
        await ask(upstream, "missing.example.com.")
        kept = upstream.counts.asked == before
        assert kept is (program == "unbound"), "dnsmasq sends no SOA, so nothing says for how long"

    resolvers.play([FIRST], scenario)


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_that_hangs_is_passed_over_and_taken_back(resolvers: Resolvers, program: str) -> None:
    hanging = resolvers.start(program, FIRST)
    resolvers.start("dnsmasq", SECOND)

    async def scenario(upstream: Upstream) -> None:
        await ask(upstream, "a.example.com.")
        hanging.send_signal(signal.SIGSTOP)
        for number in range(3):
            assert code(await ask(upstream, f"n{number}.example.com.")) == "NXDOMAIN"
        assert [state.up for state in upstream.servers] == [False, True]
        hanging.send_signal(signal.SIGCONT)
        await until(lambda: upstream.servers[0].up)

    resolvers.play([FIRST, SECOND], scenario)


def test_one_that_is_killed_costs_no_answer(resolvers: Resolvers) -> None:
    dying = resolvers.start("dnsmasq", FIRST)
    resolvers.start("dnsmasq", SECOND)

    async def scenario(upstream: Upstream) -> None:
        for number in range(60):
            if number == 20:
                dying.kill()
                dying.wait()
            assert code(await ask(upstream, f"n{number}.example.com.")) == "NXDOMAIN"

    resolvers.play([FIRST, SECOND], scenario)


def test_a_resolver_that_forwards_to_us_is_not_asked(resolvers: Resolvers) -> None:
    resolvers.start("dnsmasq", FIRST, f"--server={OURS}")
    resolvers.start("dnsmasq", SECOND)

    async def scenario(upstream: Upstream) -> None:
        ourselves = Ourselves()
        ourselves.upstream = upstream
        loop = asyncio.get_running_loop()
        taking, _ = await loop.create_datagram_endpoint(lambda: ourselves, (OURS, 53))
        upstream._probes.set_servers([])
        upstream._probes.set_servers([Server(FIRST), Server(SECOND)])
        await until(lambda: upstream.servers[0].loops)
        assert code(await ask(upstream)) == "NOERROR"
        assert code(await ask(upstream, "www.example.net.")) == "REFUSED", "what the second one says"
        taking.close()

    resolvers.play([FIRST, SECOND], scenario)

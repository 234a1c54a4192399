"""The kernel's own list of listening sockets, and /proc/net/tcp, which says the same and takes longer."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol, TypeVar

import pytest

from nodeagent.diagnosis.trace import listeners
from nodeagent.diagnosis.trace.listeners import Listeners, listed_sockets, tcp_listeners
from nodeagent.model.addresses import Family
from nodeagent.model.addresses import Protocol as Transport

pytestmark = pytest.mark.kernel

T = TypeVar("T")
PLACES = ("127.0.0.1", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1")


class Namespace(Protocol):
    """The fixture of conftest.py."""

    def run(self, work: Callable[[], T]) -> T: ...

    def shell(self, command: str) -> str: ...


def listening(places: tuple[str, ...], stack: ExitStack) -> list[int]:
    """The port of a listening socket at each of these addresses."""
    ports = []
    for place in places:
        family = socket.AF_INET6 if ":" in place else socket.AF_INET
        found = stack.enter_context(socket.socket(family))
        found.bind((place, 0))
        found.listen()
        ports.append(found.getsockname()[1])
    return ports


def test_both_lists_say_the_same_and_leave_out_connections(namespace: Namespace) -> None:
    namespace.shell("ip link set lo up")

    def work() -> None:
        with ExitStack() as stack:
            ports = listening(PLACES, stack)
            stack.enter_context(socket.create_connection(("127.0.0.1", ports[0])))
            for family, count in ((Family.IPV4, 2), (Family.IPV6, 3)):
                found = tcp_listeners(family)
                assert found is not None
                assert sorted(found) == sorted(listed_sockets(Transport.TCP, family))
                assert len(found) == count

    namespace.run(work)


@pytest.mark.parametrize("has_list", [True, False], ids=["its own list", "only /proc"])
def test_a_socket_accepts_what_it_is_bound_to(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, has_list: bool
) -> None:
    if not has_list:
        monkeypatch.setattr(listeners, "tcp_listeners", lambda _: None)
    namespace.shell("ip link set lo up")

    def accepts(address: str, port: int, *, exactly: bool = False) -> bool:
        return Listeners().accept(address, port, Transport.TCP, exactly=exactly)

    def work() -> None:
        with ExitStack() as stack:
            one, every, six, all_of_both, mapped = listening(PLACES, stack)
            assert accepts("127.0.0.1", one, exactly=True)
            assert not accepts("127.0.0.2", one)
            assert not accepts("::1", one)
            assert accepts("127.0.0.2", every)
            assert not accepts("127.0.0.2", every, exactly=True)
            assert accepts("::1", six, exactly=True)
            assert not accepts("127.0.0.1", six)
            assert accepts("127.0.0.1", all_of_both)
            assert accepts("127.0.0.1", mapped, exactly=True)
            assert not accepts("127.0.0.1", 1)

    namespace.run(work)


def test_a_kernel_that_does_not_list_them_is_asked_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int) -> None:
        raise FileNotFoundError("no such protocol")

    monkeypatch.setattr(listeners, "NetlinkSocket", refused)
    assert tcp_listeners(Family.IPV4) is None

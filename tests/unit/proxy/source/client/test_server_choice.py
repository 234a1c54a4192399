"""Which of several servers a client keeps to."""

import random
from collections import Counter

from nodeagent.proxy.source.client.server_choice import Server, Servers

A, B, C = Server("https://a"), Server("https://b"), Server("https://c")


def ordered() -> Servers:
    places = iter((0.1, 0.2, 0.3))
    return Servers((A, B, C), lambda: next(places))


def test_the_one_in_use_is_asked_first_and_each_once() -> None:
    servers = ordered()
    assert servers.use(B)
    asked: list[Server] = []
    while (server := servers.next_to_try(asked)) is not None:
        asked.append(server)
    assert asked == [B, C, A]


def test_a_client_leaves_only_the_server_in_use() -> None:
    servers = ordered()
    assert not servers.leave(C)
    assert servers.leave(A)
    assert (servers.current, servers.home) == (B, A)
    assert not servers.leave(A), "somebody else has left it before"
    assert servers.current == B


def test_a_single_server_is_never_left() -> None:
    servers = Servers((A, A), random.random)
    assert not servers.leave(A)
    assert (servers.are_several, servers.current) == (False, A)


def test_clients_spread_and_so_do_those_whose_server_failed() -> None:
    chance = random.Random(1)
    clients = [Servers((A, B, C), chance.random) for _ in range(3000)]
    homes = Counter(servers.home for servers in clients)
    assert all(900 < homes[server] < 1100 for server in (A, B, C))
    for servers in clients:
        servers.leave(A)
    now = Counter(servers.current for servers in clients)
    assert all(1400 < now[server] < 1600 for server in (B, C))

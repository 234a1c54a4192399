"""What all clients share is not used up by one of them."""

import random

import pytest

from nodeagent.names.shares import NOBODY, Client, Ranking, Shares, client_at

A, B, C = (client_at(f"10.244.1.{number}") for number in (1, 2, 3))


def six(network: int, host: int) -> Client:
    return client_at(f"fd00:{network:x}::{host:x}")


def filled(shares: Shares, *clients: Client, times: int = 10_000) -> list[int]:
    """Let clients take in turns as long as they have room; what each then holds."""
    for _ in range(times):
        for client in clients:
            if shares.has_room(client):
                shares.take(client)
    return [shares.of(client) for client in clients]


@pytest.mark.parametrize(
    ("text", "client"),
    [
        ("10.244.1.7", Client(b"\x0a\xf4\1\7", b"\x0a\xf4\1\7")),
        ("fd00:1:2:3::9", Client(bytes.fromhex("fd00000100020003"), bytes.fromhex("fd000001000200030000000000000009"))),
        ("fe80::1%3", Client(bytes.fromhex("fe80000000000000"), bytes.fromhex("fe800000000000000000000000000001"))),
        ("", NOBODY),
    ],
)
def test_who_a_client_is(text: str, client: Client) -> None:
    assert client_at(text) == client


def test_one_client_gets_half_and_the_next_finds_room() -> None:
    shares = Shares(1000)
    assert filled(shares, A) == [500]
    assert shares.has_room(B)
    assert filled(shares, B) == [250]
    assert shares.has_room(C)


def test_equal_clients_get_equal_shares() -> None:
    assert filled(Shares(1000), A, B, C) == [250, 250, 250]


def test_many_addresses_of_one_network_leave_room_for_other_networks() -> None:
    shares = Shares(900)
    filled(shares, *(six(1, host) for host in range(2000)), times=2)
    assert shares.total == 800
    assert shares.has_room(six(2, 1))


def test_a_pod_finds_room_beside_one_of_its_own_network() -> None:
    shares = Shares(1000)
    assert filled(shares, six(1, 1)) == [500]
    assert shares.has_room(six(1, 2))


def test_a_returned_share_is_free() -> None:
    shares = Shares(4)
    filled(shares, A)
    shares.give_back(A, 2)
    assert (shares.total, shares.of(A)) == (0, 0)
    with pytest.raises(IndexError):
        shares.largest()


def test_the_largest_is_in_the_largest_network() -> None:
    """A host with a whole /64 gives up its own, not what a single other client has."""
    shares = Shares(100)
    for host in range(5):
        shares.take(six(1, host), 2)
    shares.take(six(2, 1), 3)
    assert shares.largest() == six(1, 0)
    shares.give_back(six(1, 0), 2)
    assert shares.largest() == six(1, 1)


def test_the_ranking_is_that_of_a_sorted_list() -> None:
    chance = random.Random(20261123)
    ranking = Ranking()
    amounts: dict[bytes, int] = {}
    for _ in range(20_000):
        key = bytes((chance.randrange(20),))
        difference = chance.randrange(-min(amounts.get(key, 0), 9), 10)
        ranking.change(key, difference)
        amounts[key] = amounts.get(key, 0) + difference
        assert len(ranking) == sum(1 for amount in amounts.values() if amount)
        if any(amounts.values()):
            assert amounts[ranking.largest()] == max(amounts.values())

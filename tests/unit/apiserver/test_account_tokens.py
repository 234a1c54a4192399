"""A token of a service account says whose it is, to the server that made it, while it lasts."""

import base64
import hmac
import json

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.apiserver.api.account_tokens import ISSUER, Account, AccountTokens, BearerTokens
from nodeagent.apiserver.api.authorization import READERS, Role, Tokens, User, role_of

NOW = 1_000_000.0
KEY = b"k" * 32
ALICE = Account("default", "alice", "u-1")


def tokens(key: bytes = KEY, now: float = NOW) -> AccountTokens:
    return AccountTokens(key, lambda: now)


def claims(token: str) -> dict[str, object]:
    body = token.split(".")[1]
    found: dict[str, object] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def test_a_token_is_read_by_its_maker_until_it_expires() -> None:
    token, expires = tokens().issue(ALICE, [ISSUER], 600)
    assert expires == NOW + 600
    assert tokens(now=NOW + 599).read(token) == ALICE
    assert tokens(now=NOW + 600).read(token) is None
    assert (claims(token)["sub"], claims(token)["iss"]) == ("system:serviceaccount:default:alice", ISSUER)


def test_a_token_of_another_issuer_or_for_another_audience_is_refused() -> None:
    assert tokens(key=b"x" * 32).read(tokens().issue(ALICE, [ISSUER], 600)[0]) is None
    assert tokens().read(tokens().issue(ALICE, ["vault"], 600)[0]) is None


@given(st.text(max_size=40) | st.lists(st.text(max_size=8), min_size=3, max_size=3).map(".".join))
def test_any_other_text_is_not_a_token(text: str) -> None:
    assert tokens().read(text) is None


@given(st.integers(0, 300), st.sampled_from("Aa0-"))
def test_a_changed_token_is_refused(position: int, letter: str) -> None:
    token, _ = tokens().issue(ALICE, [ISSUER], 600)
    position %= len(token) - 1
    changed = token[:position] + letter + token[position + 1 :]
    assert tokens().read(changed) == (ALICE if changed == token else None)


def test_a_token_made_by_hand_with_the_key_is_read() -> None:
    """What earlier versions made without the library is good for as long as it lasts."""
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "typ": "JWT"}, claims(tokens().issue(ALICE, [ISSUER, "vault"], 600)[0]))
    )
    signature = base64.urlsafe_b64encode(hmac.digest(KEY, head + b"." + body, "sha256")).rstrip(b"=")
    assert tokens().read(b".".join((head, body, signature)).decode()) == ALICE


@pytest.mark.parametrize("missing", ["aud", "exp", "iss", "sub", "kubernetes.io"])
def test_an_incomplete_token_is_refused(missing: str) -> None:
    said = claims(tokens().issue(ALICE, [ISSUER], 600)[0])
    assert tokens().read(jwt.encode(said, KEY, algorithm="HS256")) == ALICE
    del said[missing]
    assert tokens().read(jwt.encode(said, KEY, algorithm="HS256")) is None


def test_a_token_with_another_algorithm_is_refused() -> None:
    said = claims(tokens().issue(ALICE, [ISSUER], 600)[0])
    assert tokens(key=KEY * 2).read(jwt.encode(said, KEY * 2, algorithm="HS512")) is None


def test_a_token_without_a_signature_is_refused() -> None:
    body = tokens().issue(ALICE, [ISSUER], 600)[0].split(".")[1]
    header = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').rstrip(b"=").decode()
    assert tokens().read(f"{header}.{body}.") is None


@pytest.mark.parametrize(("present", "role"), [(ALICE, Role.READER), (Account("default", "alice", "u-2"), None)])
def test_a_token_counts_only_for_the_account_it_was_issued_for(present: Account, role: Role | None) -> None:
    bearers = BearerTokens(
        Tokens({"t": User("guest", role_of([READERS]))}), tokens(), lambda account: account == present
    )
    assert bearers.user("t") == User("guest", Role.READER)
    found = bearers.user(tokens().issue(ALICE, [ISSUER], 600)[0])
    assert (found.role if found else None) == role

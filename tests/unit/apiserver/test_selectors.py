"""Label and field selectors, pages and tokens."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.apiserver.api.authorization import (
    ADMINS,
    ANONYMOUS,
    READERS,
    Role,
    Tokens,
    User,
    authenticate,
    authorize,
    role_of,
)
from nodeagent.apiserver.machinery.reading import ListRequest, Selection, list_page
from nodeagent.apiserver.machinery.selectors import parse_fields, parse_labels
from nodeagent.apiserver.storage.log import Log
from nodeagent.apiserver.storage.records import Change, draft
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.catalog import all_kinds
from nodeagent.kinds.description.printing import age
from nodeagent.kinds.description.status import ApiError
from tests.harness.steps import finished


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b,c!=d", {"a": "b"}, True),
        ("a==b,c!=d", {"a": "b", "c": "d"}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a notin (b,c)", {}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("!example.com/a", {"a": "b"}, True),
        ("a", {"a": ""}, True),
        ("a", {}, False),
        ("n>5", {"n": "6"}, True),
        ("n<5", {"n": "x"}, False),
        ("a=", {"a": ""}, True),
        ("in=notin", {"in": "notin"}, True),
    ],
)
def test_label_selectors(selector: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_labels(selector).matches(labels) is expected


class Counted(dict[str, str]):
    """Labels that count how often one is looked up."""

    looks = 0

    def __getitem__(self, key: str) -> str:
        self.looks += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("term", ["a!=v{}", "k{}!=v", "!k{}", "a notin (v{})"])
def test_a_thousand_terms_cost_what_the_labels_do(term: str) -> None:
    labels = Counted(a="b", c="d")
    assert parse_labels(",".join(term.format(number) for number in range(1000))).matches(labels)
    assert labels.looks <= 2
    assert not parse_labels(",".join(f"k{number}" for number in range(1000))).matches(labels)
    assert labels.looks <= 2


@given(
    terms=st.lists(
        st.sampled_from(["a=1", "a!=1", "a in (1,2)", "a notin (2,3)", "b", "!b", "a>1", "a<3", "b=", "b>0"])
    ),
    labels=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2", "3", "x"])),
)
def test_terms_of_one_key_hold_together_as_each_alone(terms: list[str], labels: dict[str, str]) -> None:
    together = parse_labels(",".join(terms)).matches(labels)
    assert together is all(parse_labels(term).matches(labels) for term in terms)


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("a" * 64, "name part must be no more than 63 bytes"),
        (f"a={'b' * 64}", "must be no more than 63 bytes"),
        (f"a in (b,{'c' * 64})", "must be no more than 63 bytes"),
        ("A_/b", "prefix part"),
        ("a>b", "the value must be an integer"),
        ("a>99999999999999999999", "the value must be an integer"),
    ],
)
def test_a_term_is_as_long_as_a_label_may_be(selector: str, why: str) -> None:
    """As kube-apiserver refuses them."""
    with pytest.raises(ApiError, match=why):
        parse_labels(selector)


@pytest.mark.parametrize("selector", ["a b", "a in b", "a in (b", "=", ",", "a=b,", "a=b=c", "!", "a!", "-a=b"])
def test_an_invalid_label_selector_is_a_bad_request(selector: str) -> None:
    with pytest.raises(ApiError) as found:
        parse_labels(selector)
    assert found.value.code == 400


@given(text=st.text(max_size=20))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    outcomes = set()
    for parse in (parse_labels, lambda text: parse_fields(text, ("a",), str)):
        try:
            parse(text)
        except ApiError as error:
            outcomes.add(error.code)
    assert outcomes <= {400}


def test_field_selectors_escape_commas_and_know_their_fields() -> None:
    selector = parse_fields(r"a=x\,y,b!=z", ("a", "b"), str)
    assert selector.matches({"a": "x,y", "b": ""})
    assert not selector.matches({"a": "x,y", "b": "z"})
    with pytest.raises(ApiError, match="who is c"):
        parse_fields("c=1", ("a",), lambda name: f"who is {name}")


@given(count=st.integers(0, 25), limit=st.integers(1, 7), changes=st.integers(0, 5))
def test_pages_make_up_the_list_as_it_was_when_it_began(count: int, limit: int, changes: int) -> None:
    async def scenario() -> None:
        configmaps = all_kinds().named("configmaps")
        async with Store(Log(":memory:"), clock=time.time) as store:

            async def put(name: str) -> None:
                body = draft({"metadata": {"name": name, "resourceVersion": "0"}})
                await store.commit([Change("configmaps", f"demo/{name}", None, body)])

            for number in range(count):
                await put(f"n{number:02}")
            names, token = [], ""
            while True:
                request = ListRequest(Selection("demo"), limit=limit, token=token)
                page = finished(list_page(store, configmaps, request))
                names += [record.name for record in page.records]
                assert page.revision == count
                token = page.token
                if not token:
                    break
                assert page.remaining == count - len(names)
                for number in range(changes):
                    await put(f"late{number}")
            assert names == [f"n{number:02}" for number in range(count)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (119, "119s"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 60, "5h1m"),
        (50 * 3600, "2d2h"),
        (400 * 86400, "400d"),
        (800 * 86400, "2y70d"),
    ],
)
def test_ages_read_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert age("2026-01-01T00:00:00Z", 1767225600 + seconds) == text


def test_who_may_do_what() -> None:
    tokens = Tokens({"t1": User("root", role_of([ADMINS])), "t2": User("guest", role_of(["x", READERS]))})
    root, guest = authenticate("Bearer t1", tokens, None), authenticate("Bearer t2", tokens, None)
    assert (root.role, guest.role) == (Role.ADMIN, Role.READER)
    assert authenticate("", tokens, None) == ANONYMOUS
    assert authenticate("", tokens, guest) == guest
    authorize(root, "delete", "/api/v1/nodes/n", "nodes")
    authorize(guest, "list", "/api/v1/nodes", "nodes")
    authorize(ANONYMOUS, "get", "/readyz/ping", "")
    for user, verb, path, resource, code in (
        (guest, "create", "/api/v1/nodes", "nodes", 403),
        (ANONYMOUS, "get", "/api/v1/nodes", "nodes", 401),
        (ANONYMOUS, "get", "/livezz", "", 401),
        (User("other", Role.NOBODY), "get", "/api/v1/nodes", "nodes", 403),
    ):
        with pytest.raises(ApiError) as found:
            authorize(user, verb, path, resource)
        assert found.value.code == code
    with pytest.raises(ApiError) as refused:
        authorize(guest, "get", "/api/v1/namespaces/d/secrets/s", "secrets", confidential=True)
    assert refused.value.code == 403
    assert [row.plural for row in all_kinds().rows if row.confidential] == ["secrets"]
    for header in ("Bearer wrong", "Bearer \udcff", "Bearer ä", "Basic eDp5"):
        with pytest.raises(ApiError):
            authenticate(header, tokens, guest)

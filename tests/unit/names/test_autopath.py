"""The walk along a pod's search path, done for it."""

import pytest

from nodeagent.names.autopath import as_first_step, is_found, search_path, steps
from nodeagent.wire.dns.codes import Rcode, RecordType
from nodeagent.wire.dns.domain_names import BadName, from_text, to_text
from nodeagent.wire.dns.message import Record, Sections

PATH = search_path("shop", "cluster.local", ["corp.example", "example.org."])


def walk(name: str, kind: int = RecordType.A) -> list[str]:
    return [to_text(step) for step in steps(from_text(name), kind, PATH)]


def test_the_path_is_the_clusters_then_the_nodes() -> None:
    assert [to_text(domain) for domain in PATH] == [
        "shop.svc.cluster.local.",
        "svc.cluster.local.",
        "cluster.local.",
        "corp.example.",
        "example.org.",
    ]
    assert search_path("Shop", "Cluster.Local", ["cluster.local", "a..b", "ä"]) == PATH[:3]
    with pytest.raises(BadName):
        search_path("a..b", "cluster.local", [])


def test_the_first_search_step_is_walked_to_the_bare_name() -> None:
    assert walk("www.example.com.shop.svc.cluster.local") == [
        "www.example.com.shop.svc.cluster.local.",
        "www.example.com.svc.cluster.local.",
        "www.example.com.cluster.local.",
        "www.example.com.corp.example.",
        "www.example.com.example.org.",
        "www.example.com.",
    ]
    assert walk("db.shop.svc.cluster.local", RecordType.AAAA)[1] == "db.svc.cluster.local."


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("www.example.com", RecordType.A, id="bare"),
        pytest.param("www.example.com.svc.cluster.local", RecordType.A, id="second-step"),
        pytest.param("www.example.com.other.svc.cluster.local", RecordType.A, id="another-namespace"),
        pytest.param("www.workshop.svc.cluster.local", RecordType.A, id="namespace-that-ends-alike"),
        pytest.param("shop.svc.cluster.local", RecordType.A, id="the-domain-itself"),
        pytest.param("www.example.com.shop.svc.cluster.local", RecordType.SRV, id="srv"),
        pytest.param("www.example.com.shop.svc.cluster.local", RecordType.ANY, id="any"),
    ],
)
def test_other_queries_are_not_walked(name: str, kind: int) -> None:
    assert walk(name, kind) == []


def test_letter_case_is_the_querys() -> None:
    assert walk("Www.SHOP.svc.Cluster.local")[:2] == ["Www.SHOP.svc.Cluster.local.", "Www.svc.cluster.local."]


def test_steps_that_are_no_names_are_left_out() -> None:
    long = ".".join(["a" * 60] * 3) + "." + "b" * 41
    path = search_path("shop", "cluster.local", ["very-long-domain.corp.example"])
    tried = steps(from_text(long)[:-1] + path[0], RecordType.A, path)
    assert len(tried) == 4
    assert all(len(step) <= 255 for step in tried)


@pytest.mark.parametrize(
    ("rcode", "found"), [(Rcode.NOERROR, True), (Rcode.NXDOMAIN, False), (Rcode.SERVFAIL, True), (Rcode.REFUSED, True)]
)
def test_only_nxdomain_goes_on(rcode: int, found: bool) -> None:
    assert is_found(rcode) is found


def test_the_answer_leads_from_the_name_asked_to_the_step_that_exists() -> None:
    asked, step = from_text("www.example.com.shop.svc.cluster.local"), from_text("www.example.com")
    address = Record(step, RecordType.A, 300, b"\xc0\0\2\x35")
    found = Sections((address, address._replace(ttl=60)), (), ())
    answer = as_first_step(asked, found, step)
    assert answer.answer == (Record(asked, RecordType.CNAME, 60, step), *found.answer)
    assert as_first_step(step.upper(), found, step) is found, "the name itself needs no alias"


def test_nodata_at_a_step_is_nodata_without_an_alias() -> None:
    soa = Record(from_text("example.com"), RecordType.SOA, 30, b"\0" * 22)
    found = Sections((), (soa,), ())
    assert as_first_step(from_text("a.shop.svc.cluster.local"), found, from_text("a")) == found

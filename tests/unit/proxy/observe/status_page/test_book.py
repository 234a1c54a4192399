"""What a watcher of the status page receives: all services once, then those that changed."""

from nodeagent.model.addresses import Family, Protocol
from nodeagent.model.frontend import Backend, Frontend, FrontendKind, Route, ServiceState
from nodeagent.model.names import ObjectKey, ServicePortName
from nodeagent.model.reports import FrontendCounts, KernelCounts, PassReport, TableReport
from nodeagent.proxy.observe.status_page.book import Row, ServiceBook, compare

WEB, SHOP = ObjectKey("default", "web"), ObjectKey("default", "shop")
ADDRESSES = {WEB: "10.96.0.1", SHOP: "10.96.0.2"}


def state(key: ObjectKey, *backends: Backend) -> ServiceState:
    frontend = Frontend(
        FrontendKind.CLUSTER_IP,
        Family.IPV4,
        ADDRESSES[key],
        Protocol.TCP,
        80,
        ServicePortName(key, "http", Protocol.TCP),
        Route(backends),
    )
    return ServiceState(key, frontends=(frontend,))


def a_pass(book: ServiceBook, **changed: ServiceState | None) -> None:
    keys = {"web": WEB, "shop": SHOP}
    tables = {Family.IPV4: TableReport()}
    book.passed(PassReport(0.0, 0.0, tables, {keys[name]: state for name, state in changed.items()}))


def counted(book: ServiceBook, **connections: int) -> None:
    last = {"web": 1, "shop": 2}
    by_key = {
        bytes((10, 96, 0, last[name], 6, 0, 0, 0, 0, 80, 0, 0)): (number, b"") for name, number in connections.items()
    }
    book.counted(*compare(KernelCounts((FrontendCounts(Family.IPV4, False, by_key),)), book.counts))


def names(rows: list[Row]) -> set[tuple[str, str, int]]:
    return {(row.name, row.state, row.connections) for row in rows}


def test_only_changes_after_a_revision_are_returned() -> None:
    book = ServiceBook()
    a_pass(book, web=state(WEB, Backend("10.244.0.1", 80)), shop=state(SHOP))
    assert names(list(book.all_rows())) == {("default/web", "ok", 0), ("default/shop", "no endpoints", 0)}
    seen = book.revision
    assert book.rows(seen) == []
    counted(book, web=5, shop=0)
    assert names(book.rows(seen)) == {("default/web", "ok", 5)}
    seen = book.revision
    counted(book, web=5, shop=0)
    assert book.rows(seen) == []
    a_pass(book, shop=None)
    assert names(book.rows(seen)) == {("default/shop", "gone", 0)}
    assert (book.services, book.connections) == (1, 5)


def test_a_service_that_changes_keeps_its_count() -> None:
    book = ServiceBook()
    a_pass(book, web=state(WEB))
    counted(book, web=7)
    a_pass(book, web=state(WEB, Backend("10.244.0.1", 80)))
    assert names(list(book.all_rows())) == {("default/web", "ok", 7)}
    assert [count for _, count in book.frontends("default/web")] == [7]
    assert list(book.frontends("default/none")) == []


def test_services_without_an_endpoint_are_counted() -> None:
    book = ServiceBook()
    a_pass(book, web=state(WEB), shop=state(SHOP, Backend("10.244.0.1", 80)))
    assert book.unserved == {"default/web"}
    a_pass(book, web=state(WEB, Backend("10.244.0.1", 80)), shop=state(SHOP))
    assert book.unserved == {"default/shop"}
    a_pass(book, shop=ServiceState(SHOP))
    assert book.unserved == set()
    a_pass(book, shop=state(SHOP))
    a_pass(book, shop=None)
    assert book.unserved == set()


def test_deleted_services_are_forgotten_in_the_end() -> None:
    book = ServiceBook()
    for number in range(3000):
        key = ObjectKey("default", f"s{number}")
        for present in (ServiceState(key), None):
            book.passed(PassReport(0.0, 0.0, {Family.IPV4: TableReport()}, {key: present}))
    assert len(book.rows(0)) <= 1000

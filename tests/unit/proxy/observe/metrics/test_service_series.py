"""Series of services: their text is Prometheus's, their number is bounded, and none goes back."""

from nodeagent.proxy.observe.metrics.service_series import NAME, OTHERS, ServiceSeries
from tests.unit.proxy.observe.metrics.conftest import Reader


def counts(**connections: int) -> list[list[tuple[int, bytes]]]:
    return [[(number, f"default/{service}:http".encode()) for service, number in connections.items()]]


def shown(reader: Reader, text: bytes) -> dict[str, float]:
    found = reader.of(text)
    return {dict(labels).get("service", ""): value for (name, labels), value in found.items() if name == NAME}


def others(reader: Reader, text: bytes) -> float:
    return reader.of(text)[reader.key(OTHERS)]


def test_all_addresses_of_a_service_port_are_one_series(reader: Reader) -> None:
    found = ServiceSeries(10).text([[(3, b"shop/web:http"), (4, b"shop/web:http")], [(5, b"shop/web:http")]])
    assert reader.of(found)[reader.key(NAME, namespace="shop", service="web", port="http")] == 12


def test_a_port_without_a_name_has_an_empty_one(reader: Reader) -> None:
    found = reader.of(ServiceSeries(10).text([[(3, b"shop/web")]]))
    assert found[reader.key(NAME, namespace="shop", service="web", port="")] == 3


def test_names_with_special_characters_do_not_break_the_text(reader: Reader) -> None:
    hostile = b'a"} 1\nup 1\n#/b\\"c:d\\n{'
    found = reader.of(ServiceSeries(10).text([[(7, hostile)]]))
    assert found[reader.key(NAME, namespace='a"} 1\nup 1\n#', service='b\\"c', port="d\\n{")] == 7
    assert not any(name == "up" for name, _ in found)


def test_of_too_many_those_with_most_connections_have_series(reader: Reader) -> None:
    text = ServiceSeries(2).text(counts(a=1, b=30, c=20, d=4))
    assert shown(reader, text) == {"b": 30, "c": 20}
    assert others(reader, text) == 5


def test_a_series_that_is_there_stays_when_others_overtake_it(reader: Reader) -> None:
    series = ServiceSeries(1)
    series.text(counts(a=5, b=0))
    text = series.text(counts(a=6, b=100))
    assert shown(reader, text) == {"a": 6}
    assert others(reader, text) == 100


def test_a_series_ends_with_its_service_and_makes_room(reader: Reader) -> None:
    series = ServiceSeries(1)
    series.text(counts(a=5, b=2))
    assert shown(reader, series.text(counts(b=3))) == {"b": 3}


def test_the_sum_of_the_others_never_goes_back(reader: Reader) -> None:
    series = ServiceSeries(1)
    steps = [
        counts(a=9, b=4, c=5),
        counts(a=9, b=6, c=5),
        counts(a=9, b=6),
        counts(a=20, b=7),
        counts(b=8, d=3),
        counts(d=3),
    ]
    sums = [others(reader, series.text(step)) for step in steps]
    assert sums == [9, 11, 11, 12, 15, 15]


def test_without_room_for_series_there_is_one_sum(reader: Reader) -> None:
    text = ServiceSeries(0).text(counts(a=9, b=4))
    assert shown(reader, text) == {}
    assert others(reader, text) == 13


def test_a_total_read_in_the_middle_of_a_commit_does_not_go_back(reader: Reader) -> None:
    series = ServiceSeries(1)
    values = [shown(reader, series.text(counts(a=total)))["a"] for total in (1000, 998, 1001, 3)]
    assert values == [1000, 1000, 1001, 3], "a counter that really starts again does"

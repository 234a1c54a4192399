"""The table of seeds: rows are replaced by seed, and sorted."""

from tests.soak.run import Summary
from tests.soak.seeds_table import row_of, write_rows

DOCUMENT = """Seeds measured on an old machine.

| Seed | Storage |
|---|---|
| 2 | own |
| 10 | own |

| Other | table |
"""


def test_rows_are_replaced_by_seed_and_sorted_and_nothing_else_changes() -> None:
    assert write_rows(DOCUMENT, {"10": "| 10 | etcd |", "3": "| 3 | own |"}, "this one") == (
        DOCUMENT.replace("an old machine", "this one").replace("| 10 | own |", "| 3 | own |\n| 10 | etcd |")
    )


def test_a_row_has_what_the_clients_did() -> None:
    summary = Summary(steps=40, attempts=900, held=20, lookups=300, slowest=2.04, settled=[0.1, 0.2])
    assert row_of("7", "etcd", summary, 1) == "| 7 | etcd | 2 | 40 | 900 | 20 | 300 | 1 | 2.0 |"

"""What a fault cost is counted right, and written into the right row."""

from pathlib import Path

from tests.soak.costs import Cost, cost_of, write_costs
from tests.soak.records import Attempt, Held, Lookup
from tests.soak.reliability import TRIALS

DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"


def attempt(began: float, failure: str = "", service: str = "echo") -> Attempt:
    return Attempt("caller-1", service, ("10.96.0.1:80@node-1",), ("node-1",), began, began + 1.0, "", failure)


def test_only_what_the_fault_can_have_cost_is_counted() -> None:
    attempts = [attempt(5.0, "early"), attempt(10.5), attempt(12.0, "TimeoutError"), attempt(12.5, "refused", "shop-1")]
    held = [
        Held("caller-1", ("node-1",), "echo-1-1", 8.0, 11.0, 12.0, "ConnectionResetError"),
        Held("caller-1", ("node-1",), "echo-1-1", 8.0, 19.0, 20.0),
        Held("caller-1", ("node-1",), "echo-1-1", 11.0, 19.0, 20.0, "TimeoutError"),
    ]
    lookups = [Lookup("node-1", "echo?", 9.0, 9.1), Lookup("node-1", "echo?", 11.0, 14.0)]
    cost = cost_of(attempts, held, lookups, 10.0, 0.42, 1, 7)
    assert cost.loss == "1 of 2 new, 1 of 2 open connections; 2 of 8 lookups"
    assert cost.recovery == "last failure 2.0 s after the fault began; in effect 0.4 s after its end"


def test_a_table_gets_the_measured_columns_of_its_faults_and_nothing_else_changes() -> None:
    text = "Measured on nothing yet.\n\n| `cut` a | b | c | d | e | – | – | `make f` |\n| `kill` a | b | c | d | e | x | y | `g` |\n"
    written = write_costs(text, {"cut": Cost("lost", "back")}, "a machine")
    assert written == text.replace("nothing yet", "a machine").replace("| – | – |", "| lost | back |")
    assert write_costs(written, {"cut": Cost("lost", "back")}, "a machine") == written


def test_the_document_has_a_row_and_a_command_for_each_fault() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `") and "make reliability" in line]
    assert [row.split("`")[1] for row in rows] == list(TRIALS)
    assert all(row.endswith(f"`make reliability ONLY={name}` |") for row, name in zip(rows, TRIALS, strict=True))

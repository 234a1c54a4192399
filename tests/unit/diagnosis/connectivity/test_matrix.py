"""What is printed: fields, failures with what nodeagent says, reasons of what was skipped."""

from nodeagent.diagnosis.connectivity.cases import Caller, Case, Column, Skipped, Trace
from nodeagent.diagnosis.connectivity.judgement import Expected
from nodeagent.diagnosis.connectivity.matrix import CaseOutcome, Report, outcomes, traces_wanted
from nodeagent.diagnosis.connectivity.requests import PodAnswer, Request, RequestResult
from nodeagent.model.addresses import Family, Protocol

CLIENT = Caller("client-1", "n1", {Family.IPV4: "10.244.1.2"})
TRACE = Trace("n1", "10.244.1.2", "10.96.0.1", 80, Protocol.TCP)


def case(row: str = "ClusterIP", column: Column = Column.SAME_NODE, trace: Trace | None = TRACE) -> Case:
    request = Request("tcp", Family.IPV4, "10.96.0.1", 80)
    return Case(row, column, CLIENT, request, Expected(("server-1",)), trace)


def test_a_field_says_how_many_of_its_cases_failed() -> None:
    report = Report(
        (
            CaseOutcome(case(), ""),
            CaseOutcome(case(), "refused"),
            CaseOutcome(case(), ""),
            CaseOutcome(case("names"), ""),
        ),
        (Skipped("names", Column.OUTSIDE, "it is far"),),
    )

    nothing = dict.fromkeys(("pod, other node", "node"), "-")
    assert report.rows() == [
        {"way": "ClusterIP", "pod, same node": "FAILED 1/3", **nothing, "outside": "-"},
        {"way": "names", "pod, same node": "ok", **nothing, "outside": "skipped"},
    ]
    assert report.summary() == "1 of 4 cases failed, 1 skipped"


def test_a_failure_says_what_was_expected_what_happened_and_what_nodeagent_says() -> None:
    report = Report(
        (CaseOutcome(case(), "refused"), CaseOutcome(case("another"), "refused")), (), {TRACE: ("dropped: by", "  x")}
    )

    assert list(report.failure_lines()) == [
        "failed: ClusterIP: from client-1 on n1 to 10.96.0.1:80/tcp: expected: server-1 answers; refused",
        "  nodeagent trace on n1:",
        "    dropped: by",
        "      x",
        "failed: another: from client-1 on n1 to 10.96.0.1:80/tcp: expected: server-1 answers; refused",
        "  nodeagent on n1: as above",
    ]


def test_where_no_agent_runs_there_is_no_trace() -> None:
    lines = list(Report((CaseOutcome(case(), "refused"),), ()).failure_lines())

    assert len(lines) == 1


def test_reasons_are_printed_once() -> None:
    skipped = tuple(Skipped(row, Column.OUTSIDE, "far") for row in ("one", "two", "two", "three"))

    assert list(Report((), (*skipped, Skipped("four", Column.NODE, "no"))).skipped_lines()) == [
        "skipped: one and 2 other rows: far",
        "skipped: four: no",
    ]


def test_a_connection_is_traced_once_and_not_all_of_many() -> None:
    other = Trace("n2", "10.244.1.2", "10.96.0.1", 80, Protocol.TCP)
    failures = [CaseOutcome(case(trace=trace), "refused") for trace in (TRACE, TRACE, None, other)]

    assert traces_wanted(failures, 30) == [TRACE, other]
    assert traces_wanted(failures, 1) == [TRACE]


def test_results_belong_to_their_cases() -> None:
    results = [RequestResult(answers=(PodAnswer("server-1"),)), RequestResult(answers=(PodAnswer(error="refused"),))]

    assert [one.happened for one in outcomes([case(), case()], results)] == ["", "refused"]


def test_the_document_has_everything() -> None:
    report = Report((CaseOutcome(case(), "refused"), CaseOutcome(case("fine"), "")), (), {TRACE: ("dropped",)})

    document = report.document()
    assert not document["ok"]
    assert document["cases"][0] == {
        "way": "ClusterIP",
        "from": "pod, same node",
        "source": "client-1 on n1",
        "to": "10.96.0.1:80/tcp",
        "expected": "server-1 answers",
        "ok": False,
        "happened": "refused",
        "trace": ["dropped"],
    }
    assert "trace" not in document["cases"][1]
    assert Report((CaseOutcome(case(), ""),), ()).document()["ok"]

"""YAML text as values and lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.wire.yaml.yaml_documents import MAX_DEPTH, YamlDocument, YamlFault, documents


def values(text: str) -> list[object]:
    return [read.value if isinstance(read, YamlDocument) else (read.line, read.reason) for read in documents(text)]


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("80", 80), ("-1", -1), ("0", 0), ("0x1F", 31), ("017", 15), ("0o17", 15), ("1_000", 1000), ("089", 89.0),
        ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5),
        ("true", True), ("Yes", True), ("on", True), ("FALSE", False), ("no", False), ("off", False), ("y", "y"),
        ("10.0.0.1", "10.0.0.1"), ("fd00::1", "fd00::1"), ("1:20", "1:20"), ("-", [None]),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), ("2026-01-01", "2026-01-01"), (".inf", ".inf"),
        ('"80"', "80"), ("'true'", "true"), ('""', ""), ("!!str 80", "80"), ("!!int 80", 80), ("|\n  a\n", "a\n"),
        ("9" * 100, "9" * 100),
    ],
)  # fmt: skip
def test_scalars_are_read_as_by_kubernetes(scalar: str, expected: object) -> None:
    (read,) = values(f"- {scalar}")
    assert read == [expected]
    assert isinstance(read, list)
    assert type(read[0]) is type(expected)


@pytest.mark.parametrize("null", ["", "~", "null", "Null", "NULL"])
def test_null_entries_are_absent(null: str) -> None:
    assert values(f"a: {null}\nb: 1") == [{"b": 1}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="empty"),
        pytest.param("# only a comment\n", [], id="comment"),
        pytest.param("---\na: 1\n---\n---\nb: 2\n...\n", [{"a": 1}, None, {"b": 2}], id="several documents"),
        pytest.param("x: &x {a: 1}\ny: *x", [{"x": {"a": 1}, "y": {"a": 1}}], id="alias"),
        pytest.param("x: &x {a: 1, b: 2}\ny: {<<: *x, a: 5}", [{"x": {"a": 1, "b": 2}, "y": {"a": 5, "b": 2}}], id="merge"),
        pytest.param("y: {<<: [{a: 1}, {a: 2, b: 3}]}", [{"y": {"a": 1, "b": 3}}], id="merge several, first wins"),
        pytest.param('"<<": 1', [{"<<": 1}], id="a quoted << is a key"),
        pytest.param("80: x", [{"80": "x"}], id="keys are text"),
        pytest.param('{"a": [1, {"b": null}]}', [{"a": [1, {}]}], id="JSON is YAML"),
    ],
)  # fmt: skip
def test_documents(text: str, expected: list[object]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "a: 1\n---\nb: [1, 2\n---\nc: 3\n",
            [{"a": 1}, (4, "did not find expected ',' or ']'"), {"c": 3}],
            id="unclosed list",
        ),
        pytest.param("a: 'x\n---\nb: 2", [(2, "found unexpected document indicator"), {"b": 2}], id="unclosed quote"),
        pytest.param("a: b: c\n---\nd: 1", [(1, "mapping values are not allowed in this context"), {"d": 1}], id="colon"),
        pytest.param("--- @x\n--- %y\n--- ok\n", [
            (1, "found character that cannot start any token"), (2, "found character that cannot start any token"), "ok"
        ], id="every separator is tried"),
        pytest.param("a: \x00\n---\nb: 2", [(1, "control characters are not allowed (character 0)"), {"b": 2}], id="NUL"),
        pytest.param("\na: 1\na: 2\n---\nb: 2", [(3, "the key a appears twice"), {"b": 2}], id="key twice"),
        pytest.param("a:\n- !!binary aa\n", [(2, "the tag tag:yaml.org,2002:binary is not supported")], id="tag"),
        pytest.param("a: !x {}\n", [(1, "the tag !x is not supported")], id="tag on a mapping"),
        pytest.param("a: *b\n---\nc: 1", [(1, "found undefined alias"), {"c": 1}], id="unknown alias"),
        pytest.param("a: &a [*a]", [(1, "an alias contains itself")], id="alias contains itself"),
        pytest.param("<<: 5", [(1, "only mappings can be merged")], id="merge of a number"),
        pytest.param("? [a]\n: b\n", [(1, "a key must be text")], id="list as key"),
        pytest.param("[" * 100_000, [(1, "nested too deeply")], id="deep flow"),
        pytest.param("- " * 100_000, [(1, "nested too deeply")], id="deep blocks"),
    ],
)  # fmt: skip
def test_a_broken_document_does_not_take_others_along(text: str, expected: list[object]) -> None:
    assert values(text) == expected


def test_reading_gives_up_after_many_broken_documents() -> None:
    read = values("--- @\n" * 100)
    assert len(read) == 22
    assert read[-1] == (22, "too many broken documents, the rest of the file is not read")


def test_depth_up_to_the_limit_is_read() -> None:
    (read,) = documents("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    assert isinstance(read, YamlDocument)


def test_aliases_of_aliases_are_refused_before_anybody_walks_through_them() -> None:
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 30))
    assert values(bomb) == [(5, "aliases stand for more than 100000 values")]


@pytest.mark.parametrize(("times", "read"), [(100, True), (1000, False)])
def test_one_alias_many_times_is_refused_where_it_comes_to_much(times: int, read: bool) -> None:
    (found,) = documents(f"a: &a [{'x,' * 500}]\nb: [{'*a,' * times}]")
    assert isinstance(found, YamlDocument) is read


def test_of_a_key_that_appears_twice_the_last_counts_where_that_is_asked_for() -> None:
    (found,) = documents("a: 1\na: 2", last_wins=True)
    assert isinstance(found, YamlDocument)
    assert found.value == {"a": 2}


TEXT = """\
# a comment
kind: Service
---
kind: Service
spec:
  ports:
  - name: http
    port: 80
  - name: dns
    port: x
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("$", 4), ("$.spec", 5), ("$.spec.ports", 6), ("$.spec.ports[0]", 7), ("$.spec.ports[1].port", 10),
        ("$.spec.ports[1].missing", 9), ("$.spec.ports[7].port", 6), ("$.metadata.name", 4), ("$.kind.x[0]", 4),
    ],
)  # fmt: skip
def test_a_path_leads_to_a_line(path: str, line: int) -> None:
    _, second = documents(TEXT)
    assert isinstance(second, YamlDocument)
    assert second.line_of(path) == line


def test_lines_count_from_where_the_text_begins_in_the_file() -> None:
    (read,) = documents("a: 1\nb: 2", above=10)
    assert isinstance(read, YamlDocument)
    assert read.line_of("$.b") == 12
    assert [fault.line for fault in documents("x: [\n---\ny: [", above=10) if isinstance(fault, YamlFault)] == [12, 13]


@given(st.text(alphabet=st.sampled_from("ab:- \n[]{}'\"&*!#|>%@0.,?<~\t\r\u2028\x85"), max_size=60))
def test_any_text_gives_documents_or_faults_with_lines_inside_it(text: str) -> None:
    for read in documents(text):
        line = read.line if isinstance(read, YamlFault) else read.line_of("$")
        assert 1 <= line <= len(text.splitlines()) + 1

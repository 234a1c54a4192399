"""The documents are true where a program can tell: links, files, commands, options, manifests, decisions."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import click
import pytest
import yaml

from nodeagent.cli.main import main
from nodeagent.config.keys import KEYS
from nodeagent.kinds.catalog import all_kinds
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.program import schema
from nodeagent.proxy.dataplane.program.chain import PodDetection, ProgramOptions
from nodeagent.proxy.dataplane.program.program import build_program
from nodeagent.proxy.source.manifests.manifests import Manifest, parse_manifest

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md")),
    *(ROOT / name for name in ("SECURITY.md", "GOVERNANCE.md", "CODE_OF_CONDUCT.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "docs" / "examples").iterdir())

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SOURCE_FILE = re.compile(
    r"(?<![\w/-])(?:nodeagent|tests|docs)/[\w./-]*\w\.(?:py|md|yaml|json)|[a-z_]+(?:/[a-z_]+)*\.py"
)
INVOCATION = re.compile(r"\bnodeagent((?: +(?!…)[\w./,:=*\[\]{}|<>-]+)*)")
TYPED = re.compile(r"(?:\.venv/bin/)?nodeagent ")
OPTION = re.compile(r"(?<![\w-])(--?[a-z][a-z0-9-]*)")
SEMANTICS = ROOT / "docs" / "semantics.md"
CITATION = re.compile(r"docs/semantics\.md((?:(?:,? and|,)?\s§?\d+(?:-\d+)?)+)(?!\d)")
SOURCES = [path for place in ("nodeagent", "tests") for path in sorted((ROOT / place).rglob("*.py"))]
SOURCE_NAMES = frozenset(path.name for path in SOURCES)
BELOW_PACKAGE = [str(path) for path in SOURCES if path.is_relative_to(ROOT / "nodeagent")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def each_document(*, generated: bool = True) -> pytest.MarkDecorator:
    documents = [path for path in DOCUMENTS if generated or path.name != "config.md"]
    return pytest.mark.parametrize("document", documents, ids=name_of)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code_of(text: str) -> Iterator[str]:
    """Everything set as code: spans, and lines of indented blocks and of commands."""
    text = FENCE.sub(lambda block: indent(block[2], "    ") if block[1] == "bash" else "", text)
    for line in text.splitlines():
        if line.startswith("    "):
            yield line.strip()
        else:
            yield from CODE.findall(line)


@each_document()
def test_links_lead_somewhere(document: Path) -> None:
    follow_links(document, ROOT)


def follow_links(document: Path, root: Path) -> int:
    """Returns how many links the document has; each leads to a file below `root`, and to a heading that is there."""
    text = FENCE.sub("", document.read_text())
    links = [link for link in LINK.findall(text) if "://" not in link]
    for link in links:
        target, _, anchor = link.partition("#")
        path = (document.parent / target).resolve() if target else document
        assert path.exists(), f"{link}: there is no {path}"
        assert path.is_relative_to(root), f"{link} leaves the repository"
        if anchor:
            assert anchor in anchors(path.read_text()), f"{link}: no such heading"
    return len(links)


def test_links_in_the_documents_of_the_package_lead_somewhere(tmp_path: Path) -> None:
    script = ROOT / "systemd" / "packaging" / "documents.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    found = sum(follow_links(document, tmp_path) for document in tmp_path.rglob("*.md"))
    assert found > 100
    assert "[commands](docs/commands.md)" in (tmp_path / "README.md").read_text()
    assert "(tests/README.md)" not in (tmp_path / "README.md").read_text()


@each_document()
def test_files_that_are_named_exist(document: Path) -> None:
    for code in code_of(document.read_text()):
        for named in SOURCE_FILE.findall(code):
            if named.startswith(("nodeagent/", "tests/", "docs/")):
                assert (ROOT / named).exists(), f"there is no {named}"
            elif "/" in named:
                assert any(path.endswith(f"/{named}") for path in BELOW_PACKAGE), (
                    f"there is no {named} below nodeagent/"
                )
            else:
                assert named in SOURCE_NAMES, f"there is no {named}"


def commands(command: click.Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """Every command by its words."""
    found = {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None, name
            found |= commands(child, (*path, name))
    return found


COMMANDS = commands(main)


def options_of(command: click.Command) -> set[str]:
    context = click.Context(command, help_option_names=["-h", "--help"])
    parameters = command.get_params(context)
    return {spelling for one in parameters for spelling in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}


EVERY_OPTION = set().union(*map(options_of, COMMANDS.values()))


def test_the_command_tree_was_read() -> None:
    assert {("run",), ("show",), ("cleanup",), ("config", "check")} <= set(COMMANDS)
    assert {"--once", "--manifests", "--kubeconfig"} <= options_of(COMMANDS["run",])


@each_document()
def test_commands_and_their_options_exist(document: Path) -> None:
    for code in code_of(document.read_text()):
        for words in INVOCATION.findall(code):
            check_invocation(words.split(), code)


def check_invocation(words: list[str], code: str) -> None:
    """`nodeagent WORDS`: the longest command it begins with exists and has these options."""
    length = max(size for size in range(len(words) + 1) if tuple(words[:size]) in COMMANDS)
    command = COMMANDS[tuple(words[:length])]
    rest = words[length:]
    if isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z]+", rest[0]) and TYPED.match(code):
        assert rest[0] in command.list_commands(click.Context(command)), f"`{code}`: no command {rest[0]}"
    for option in OPTION.findall(" ".join(rest)):
        assert option in options_of(command), f"`{code}`: {'nodeagent ' + ' '.join(words[:length])} has no {option}"


@each_document(generated=False)
def test_lone_options_are_options_of_some_command(document: Path) -> None:
    for code in CODE.findall(FENCE.sub("", document.read_text())):
        if code.startswith("--") and code.split()[0].partition("=")[0] not in EVERY_OPTION:
            pytest.fail(f"no command has `{code}`")


def test_the_document_of_commands_has_every_command_and_its_own_options() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    for words, command in COMMANDS.items():
        assert " ".join(("nodeagent", *words)) in text
        if words != ("run",) and words[:1] != ("config",):
            for option in options_of(command) - {"-h", "--help"}:
                assert option in text, f"docs/commands.md says nothing of {' '.join(words)} {option}"


def test_a_paragraph_of_a_command_is_in_its_section() -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "commands.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) > 10
    for section in sections:
        title = section.partition("\n")[0]
        for named in re.findall(r"^`nodeagent ([a-z-]+)", section, re.MULTILINE):
            assert not title.startswith("nodeagent ") or named in title, f"{title}: a paragraph about {named}"


@each_document(generated=False)
def test_configuration_keys_exist(document: Path) -> None:
    sections = {path.partition(".")[0] for path in KEYS}
    for code in CODE.findall(document.read_text()):
        key = re.fullmatch(r"([a-z]+)\.([a-zA-Z]+)(?:: .*)?", code)
        if key and key[1] in sections and key[2] not in ("md", "py", "yaml"):
            assert f"{key[1]}.{key[2]}" in KEYS, f"there is no option {code}"


def test_where_each_thing_is_decided_names_files() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## Where is X decided?")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    for row in rows:
        files = CODE.findall(row.split("|")[2])
        assert files, f"no file in {row}"
        for file in files:
            assert (ROOT / file).is_file(), f"there is no {file}"


def test_every_directory_is_on_the_map() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "nodeagent").iterdir():
        if (path / "__init__.py").exists():
            assert f"[nodeagent/{path.name}/]" in text, f"the map has no {path.name}"


def test_every_decision_is_in_the_index_with_its_title() -> None:
    index = (DECISIONS / "README.md").read_text()
    files = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
    for path in files:
        number = path.name.partition("-")[0]
        title = path.read_text().partition("\n")[0]
        assert re.fullmatch(rf"# {number} \w.*", title), f"{path.name} calls itself {title}"
        row = f"| [{number}]({path.name}) | {title[7:]} |"
        assert index.count(row) == 1, f"the index has not this row once: {row}"
    numbers = [path.name[:4] for path in files]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("path", sorted(DECISIONS.glob("0*.md")), ids=lambda path: path.name[:4])
def test_a_decision_has_the_form_that_the_index_describes(path: Path) -> None:
    text = path.read_text()
    said = [bold or heading for bold, heading in re.findall(r"^(?:\*\*([^*]+)\.\*\*|## (.+)$)", text, re.MULTILINE)]
    assert {"Decision", "Why"} <= set(said), f"{path.name} has {said}"
    assert not {"What", "What was decided", "What was rejected", "Price", "Status"} & set(said)
    assert "\nStatus:" not in text


def statements() -> dict[str, list[int]]:
    """Section of docs/semantics.md → the numbers of its statements."""
    found: dict[str, list[int]] = {}
    for line in SEMANTICS.read_text().splitlines():
        if heading := re.match(r"## (§\d+) ", line):
            found[heading[1]] = []
        elif statement := re.match(r"(\d+)\. ", line):
            found[list(found)[-1]].append(int(statement[1]))
    return found


def cited(text: str) -> set[str]:
    """What a source cites of docs/semantics.md: `§3`, `41`; a range is each number in it."""
    found: set[str] = set()
    for citation in CITATION.findall(text):
        for section, first, last in re.findall(r"(§?)(\d+)(?:-(\d+))?", citation):
            found |= {f"{section}{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def test_statements_are_numbered_without_gaps() -> None:
    """A renderer numbers a list by itself from its first number on: a gap would shift what readers see."""
    numbers = [number for section in statements().values() for number in section]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("(docs/semantics.md 41)", {"41"}, id="one"),
        pytest.param("docs/semantics.md 6-8, 50.", {"6", "7", "8", "50"}, id="range"),
        pytest.param("docs/semantics.md §2,\n§7 and §9, 66 and 72: one", {"§2", "§7", "§9", "66", "72"}, id="lines"),
        pytest.param("docs/semantics.md 17, docs/decisions/0011-x.md", {"17"}, id="beside-a-decision"),
    ],
)
def test_citations_are_read(text: str, expected: set[str]) -> None:
    assert cited(text) == expected


def test_statements_that_are_cited_exist() -> None:
    sections = statements()
    known = set(sections) | {str(number) for numbers in sections.values() for number in numbers}
    citing = {name_of(path): cited(path.read_text()) for path in SOURCES if path != Path(__file__)}
    assert len(set().union(*citing.values())) > 20
    for source, numbers in citing.items():
        assert numbers <= known, f"{source} cites {sorted(numbers - known)}, which docs/semantics.md does not have"


def test_ids_of_translation_tests_are_numbers_of_statements() -> None:
    known = {number for numbers in statements().values() for number in numbers}
    for path in (ROOT / "tests" / "unit" / "proxy" / "translate").glob("test_*.py"):
        for number in re.findall(r'id="(\d{1,2})[a-c]?-', path.read_text()):
            assert int(number) in known, f"{name_of(path)}: there is no statement {number}"


def test_documents_that_sources_name_exist() -> None:
    for path in SOURCES:
        for named in re.findall(r"docs/(?:[\w-]+/)*[\w-]+\.md", path.read_text()):
            assert (ROOT / named).is_file() or path == Path(__file__), f"{name_of(path)} names {named}"


@each_document()
def test_no_path_outside_the_repository(document: Path) -> None:
    assert not re.search(r"(?<![\w.])/(work|home|root)/", document.read_text())


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_examples_load(path: Path) -> None:
    manifest = parse_manifest(path.name, path.read_bytes())
    assert manifest.objects
    assert manifest == Manifest(objects=manifest.objects, namespaces=manifest.namespaces)


def yaml_blocks() -> Iterator[Any]:
    for document in DOCUMENTS:
        for number, (language, text) in enumerate(FENCE.findall(document.read_text()), 1):
            if language == "yaml":
                yield pytest.param(text, id=f"{name_of(document)}-{number}")


@pytest.mark.parametrize("text", list(yaml_blocks()))
def test_yaml_in_documents_is_what_it_claims_to_be(text: str) -> None:
    """Manifests are read by the parser of the agent; everything else at least has a kind."""
    for document in yaml.safe_load_all(text):
        assert document["apiVersion"], document
        assert document["kind"], document
    manifest = parse_manifest("block.yaml", text.encode())
    assert not manifest.faults
    assert not manifest.advice


def test_the_cluster_role_covers_what_is_asked_for() -> None:
    asked = set(re.findall(r"/(\w+)\"", (ROOT / "nodeagent" / "proxy" / "source" / "api_source.py").read_text()))
    asked &= {"services", "endpointslices", "endpoints", "nodes", "servicecidrs"}
    assert len(asked) >= 4
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    blocks = [block for language, block in FENCE.findall(text) if language == "yaml"]
    roles = [doc for block in blocks for doc in yaml.safe_load_all(block) if doc["kind"] == "ClusterRole"]
    granted = {
        resource
        for role in roles
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for resource in rule["resources"]
    }
    assert asked <= granted


def test_the_dataplane_document_has_every_set_and_chain() -> None:
    text = (ROOT / "docs" / "dataplane.md").read_text()
    program = build_program(Family.IPV4, ProgramOptions(PodDetection.CIDR), (), ())
    names = [spec.name for spec in schema.set_specs(counters=True)] + [chain.name for chain in program.chains]
    for name in names:
        assert f"`{name}`" in text, f"docs/dataplane.md says nothing of {name}"
    assert f"schema {schema.SCHEMA}:" in text


def test_the_document_of_the_api_server_has_every_kind() -> None:
    section = (ROOT / "docs" / "apiserver.md").read_text().partition("## What it has")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")]
    for row in all_kinds().rows:
        version = f"`{row.group}/{row.version}`" if row.group else f"`{row.version}`"
        kinds = " ".join(kinds for group, kinds in rows if version in group)
        assert re.search(rf"\b{row.kind}\b", kinds), f"docs/apiserver.md says nothing of {row.kind} of {version}"


def test_the_map_of_the_tests_has_every_folder() -> None:
    """A folder of a map's row stands for those below it, unless they have rows of their own."""
    mapped = set(re.findall(r"^\| \[([\w/]+)/\]", (ROOT / "tests" / "README.md").read_text(), re.MULTILINE))
    holding = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    rooms = {path.name for path in (ROOT / "nodeagent").iterdir() if path.is_dir()} | {"agent", "harness"}
    assert {folder.parts[0] for folder in holding} | {"harness", "bench", "tools"} == {
        name for name in mapped if "/" not in name
    }
    assert {folder.parts[1] for folder in holding if folder.parts[0] == "unit"} <= rooms
    with_rows = {name.split("/")[0] for name in mapped if "/" in name}
    assert {
        "/".join(folder.parts[:2]) for folder in holding if folder.parts[0] in with_rows and folder.parts[1:]
    } <= mapped

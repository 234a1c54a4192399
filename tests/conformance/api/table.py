"""The results as docs/conformance-api.md. Pure."""

from collections.abc import Iterable, Sequence

from tests.conformance.api.e2e import Outcome
from tests.conformance.api.expectations import Expectations

_LONGEST = 160


def render(
    expectations: Expectations,
    outcomes: Sequence[Outcome],
    specs: Iterable[str],
    release: str,
    controllers: Iterable[str],
) -> str:
    """The whole document."""
    passed = sum(outcome.passed for outcome in outcomes)
    lines = [
        "# The API server under Kubernetes' API tests",
        "",
        f"`make conformance-api KUBERNETES=DIR` wrote this with e2e.test {release}. Our [API server](apiserver.md) ran on a host",
        "of its own, kept objects in memory, and had a real kube-controller-manager of the same release beside it, with these controllers:",
        f"{', '.join(f'`{name}`' for name in controllers)}.",
        "Two Nodes were declared that nobody runs: there is no kubelet and no scheduler.",
        "",
        f"**{passed} of {len(outcomes)} specs passed** that are for kinds and paths that it has and need no pod that runs. What else",
        "these groups test is [below](#not-for-this-server), with the reason.",
        "",
        "## What was run",
        "",
        "| Spec | Result | Seconds |",
        "|---|---|---|",
        *(_row(outcome) for outcome in sorted(outcomes, key=lambda outcome: (outcome.passed, outcome.spec))),
        "",
        "## Not for this server",
        "",
        "| Why | Specs | Which |",
        "|---|---|---|",
    ]
    names = list(specs)
    for reason in expectations.reasons:
        covered = [name for name in names if expectations.reason(name) is reason]
        lines.append(f"| {reason.why} | {len(covered)} | {_families(covered)} |")
    return "\n".join(lines) + "\n"


def _row(outcome: Outcome) -> str:
    result = "passed" if outcome.passed else f"**{outcome.state}**: {_escaped(outcome.message)}"
    return f"| {_escaped(outcome.spec)} | {result} | {outcome.seconds:.1f} |"


def _families(names: Iterable[str]) -> str:
    """How the names begin, each once: the group and the first words."""
    return ", ".join(dict.fromkeys(_escaped(_family(name)) for name in sorted(names)))


def _family(name: str) -> str:
    group, _, rest = name.partition("] ")
    for mark in (" [", " should", " MUST", " must"):
        rest = rest.partition(mark)[0] or rest
    return f"{group.removeprefix('[sig-')}: {rest[:50]}"


def _escaped(text: str) -> str:
    line = " ".join(text.split())
    line = line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
    return line.replace("|", "\\|").replace("<", "&lt;")

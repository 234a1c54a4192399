"""Results → the table that is printed, and docs/conformance.md."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.conformance import results, specs, support
from tests.conformance.proxies import KUBE_PROXY, NODEAGENT, PROXIES
from tests.conformance.results import FAILED, PASSED, SKIPPED, Result
from tests.conformance.run import RUN, Part
from tests.harness.kubernetes.network_plugin import BRIDGE, PLUGINS

Results = dict[str, Result]
SLOWER_SECONDS = 20
HEADER = """<!-- Written by `make conformance` from the results of e2e.test. Change tests/conformance, not this file. -->
# Kubernetes' own tests of the network

    make conformance KUBERNETES=DIR

brings up real clusters of the Kubernetes release in DIR, one after the other: etcd, kube-apiserver, kube-controller-manager and
kube-scheduler on a host, and dual-stack nodes with kubelet, containerd and a network plugin, each in a zone and in namespaces of its own. In each cluster
it runs the specs of `e2e.test` for sig-network, and writes this document. DIR is where the archives `kubernetes-server` and
`kubernetes-test` of a release are unpacked, with `etcd`, `coredns` and `agnhost` beside them. It needs root, Debian 12 and
its packages, no registry.

nodeagent is the image of `make image`, deployed by `deploy/base` with the component `names`; there is no CoreDNS beside it. kube-proxy is a process on each
node, in nftables mode, with two pods of CoreDNS.
"""


def parts(directory: Path) -> list[tuple[Part, Results]]:
    """What has been run, with its results; shares of one part together."""
    found: dict[tuple[str, str, str], tuple[Part, Results]] = {}
    for path in sorted(directory.glob(f"*/{RUN}")):
        part = Part(**json.loads(path.read_text()))
        read = results.read(sorted(path.parent.glob("*.xml")))
        of = {spec: result for spec, result in read.items() if specs.reason_for_leaving_out(spec) is None}
        key = (part.plugin, part.proxy, part.kind)
        if key in found:
            before, earlier = found[key]
            part, of = replace(part, seconds=part.seconds + before.seconds), earlier | of
        found[key] = (part, of)
    return list(found.values())


def table(directory: Path) -> str:
    """One line for each part."""
    lines = [f"{'plugin':8}{'proxy':12}{'specs':13}{'passed':>7}{'failed':>7}{'skipped':>8}{'minutes':>9}"]
    for part, found in parts(directory):
        counts = Counter(result.verdict for result in found.values())
        counted = f"{counts[PASSED]:7}{counts[FAILED]:7}{counts[SKIPPED]:8}"
        lines.append(f"{part.plugin:8}{part.proxy:12}{part.kind:13}{counted}{part.seconds / 60:9.1f}")
    return "\n".join(lines)


def fails(directory: Path) -> bool:
    """Whether a conformance spec failed beside nodeagent."""
    ours = [of for part, of in parts(directory) if part.proxy == NODEAGENT.name and part.kind == specs.CONFORMANCE]
    return any(result.verdict == FAILED for of in ours for result in of.values())


def write(directory: Path, known: Sequence[str], versions: str) -> str:
    """The whole document."""
    found = parts(directory)
    sections = [
        HEADER,
        _summary(found, versions),
        _failures(found),
        _skipped_by_themselves(found),
        _left_out(known),
        _times(found),
        _support(found),
        _every_spec(found),
    ]
    return "\n".join(f"{section.strip()}\n" for section in sections if section)


def _rows(header: str, rows: Iterator[str]) -> str:
    columns = header.count("|") - 1
    return "\n".join([header, f"|{'---|' * columns}", *rows, ""])


def _summary(found: Sequence[tuple[Part, Results]], versions: str) -> str:
    dates = sorted({part.date for part, _ in found})
    jobs = sorted({part.jobs for part, _ in found})

    def rows() -> Iterator[str]:
        for part, results_of in found:
            counts = Counter(result.verdict for result in results_of.values())
            shown = PROXIES[part.proxy].shown
            busy = sum(result.seconds for result in results_of.values())
            yield (
                f"| `{part.plugin}` | {shown} | {part.kind} | {counts[PASSED]} of {counts[PASSED] + counts[FAILED]} | {counts[FAILED]} "
                f"| {counts[SKIPPED]} | {part.seconds / 60:.1f} min | {busy / 60:.1f} min |"
            )

    written = _rows("| Plugin | Proxy | Specs | Passed | Failed | Skipped themselves | Took | Sum of specs |", rows())
    nodes = sorted({part.nodes for part, _ in found})
    run = f"Run on {' and '.join(dates)}, {' or '.join(map(str, nodes))} nodes, {' or '.join(map(str, jobs))} specs at a time: {versions}."
    return f"## Results\n\n{run}\n\n{written}"


def _failures(found: Sequence[tuple[Part, Results]]) -> str:
    def rows() -> Iterator[str]:
        for spec in sorted({spec for _, of in found for spec, one in of.items() if one.verdict == FAILED}):
            failed = [(part, of[spec]) for part, of in found if spec in of and of[spec].verdict == FAILED]
            passed = [
                f"{part.proxy} ({part.plugin})" for part, of in found if spec in of and of[spec].verdict == PASSED
            ]
            where = ", ".join(f"{part.proxy} ({part.plugin})" for part, _ in failed)
            yield f"| {_short(spec)} | {where} | {', '.join(passed) or '-'} | {_cell(failed[0][1].why)} |"

    listed = list(rows())
    if not listed:
        return "## Failures\n\nNo spec failed.\n"
    return "## Failures\n\n" + _rows("| Spec | Failed beside | Passed beside | It said |", iter(listed))


def _skipped_by_themselves(found: Sequence[tuple[Part, Results]]) -> str:
    reasons = {(spec, one.why) for _, of in found for spec, one in of.items() if one.verdict == SKIPPED}
    if not reasons:
        return ""
    rows = (f"| {_short(spec)} | {_cell(why)} |" for spec, why in sorted(reasons))
    return "## Specs that skip themselves\n\n" + _rows("| Spec | It said |", rows)


def _left_out(known: Sequence[str]) -> str:
    reasons = {spec: reason for spec in known if (reason := specs.reason_for_leaving_out(spec))}
    counts = Counter(reasons.values())
    official = sum(specs.kind(spec) == specs.CONFORMANCE for spec in reasons)
    rows = (f"| {count} | {reason} |" for reason, count in counts.most_common())
    intro = f"Of {len(known)} specs {len(reasons)} are left out (`tests/conformance/specs.py`), {official} of them conformance specs.\n\n"
    return "## Left out\n\n" + intro + _rows("| Specs | Why |", rows)


def _times(found: Sequence[tuple[Part, Results]]) -> str:
    """Specs that take much longer beside one proxy than beside the other, with the plugin that has all of them."""
    ours, theirs = _of(found, NODEAGENT.name), _of(found, KUBE_PROXY.name)
    both = [spec for spec in ours if spec in theirs and {ours[spec].verdict, theirs[spec].verdict} == {PASSED}]
    if not both:
        return ""
    sums = [sum(of[spec].seconds for spec in both) for of in (ours, theirs)]
    far = sorted(both, key=lambda spec: ours[spec].seconds - theirs[spec].seconds)
    far = [spec for spec in far if abs(ours[spec].seconds - theirs[spec].seconds) > SLOWER_SECONDS]
    rows = (f"| {_short(spec)} | {ours[spec].seconds:.0f} s | {theirs[spec].seconds:.0f} s |" for spec in far)
    intro = (
        f"The {len(both)} specs that passed beside both took {sums[0]:.0f} s beside nodeagent and {sums[1]:.0f} s beside kube-proxy, added up. "
        f"Most of that is waiting for pods. These differ by more than {SLOWER_SECONDS} s:\n\n"
    )
    return "## Times\n\n" + intro + _rows("| Spec | nodeagent | kube-proxy |", rows)


def _support(found: Sequence[tuple[Part, Results]]) -> str:
    intro = (
        "*Tested*: a command of this project runs it. *Read*: concluded from the other program's source or documents. *Unknown*: neither. "
        "flannel, Calico and Cilium are not in Debian's archive, from which these clusters are made.\n\n"
    )
    run_with = {part.plugin for part, _ in found if part.proxy == NODEAGENT.name}
    matrix = support.matrix(PLUGINS, run_with)
    rows = (
        f"| {area} | {one.what} | {one.state} | {one.evidence} |" for area, entries in matrix.items() for one in entries
    )
    return "## What is supported\n\n" + intro + _rows("| | Which | State | Evidence |", rows)


def _every_spec(found: Sequence[tuple[Part, Results]]) -> str:
    ours, theirs = _of(found, NODEAGENT.name), _of(found, KUBE_PROXY.name)
    rows = (
        f"| {_short(spec)} | {_verdict(ours.get(spec))} | {_verdict(theirs.get(spec))} |"
        for spec in sorted(ours | theirs)
    )
    return "## Every spec, with the plugin `bridge`\n\n" + _rows("| Spec | nodeagent | kube-proxy |", rows)


def _of(found: Sequence[tuple[Part, Results]], proxy: str) -> Results:
    merged: Results = {}
    for part, of in found:
        if part.proxy == proxy and part.plugin == BRIDGE.name:
            merged |= of
    return merged


def _verdict(result: Result | None) -> str:
    if result is None:
        return "not run"
    return result.verdict if result.verdict == SKIPPED else f"{result.verdict}, {result.seconds:.0f} s"


def _short(spec: str) -> str:
    return _cell(spec.removeprefix(f"{specs.AREA} "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")

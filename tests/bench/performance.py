"""Every figure that the documents state, each with its peer or floor in the same run: `make bench`, which writes docs/performance.md.

As root, with nft and a C compiler, on a machine that does nothing else: twelve minutes. Also writes docs/performance.json, from which
`--from` makes the document again, and a plot. `--against REV` measures another revision in turns; its columns are printed, and are not
part of the document. What has its peer in a program that is not installed (iptables-legacy-restore; dnsperf and unbound) is left out.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from nodeagent.model.addresses import Family
from tests.bench import established, new_connection
from tests.bench.table import checkout, medians
from tests.bench.table import measure_apart as measure_engine

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT, DATA, PLOT = (
    ROOT / "docs" / name for name in ("performance.md", "performance.json", "images/performance.svg")
)
SIZES = ((1_000, 10), (10_000, 10), (50_000, 10))
SIZE = (10_000, 10)
"""The one with peers, and that is measured several times."""
TURNS = 3
LARGE = (50_000, 10)
AIMS = {
    "start to ready s": 2.0,
    "restart to ready s": 1.5,
    "RSS MB": 140.0,
    "a change alone, p50 ms until in force": 1.0,
    "a change alone, p99 ms until in force": 2.0,
    "a change at 400/s, processor ms": 0.25,
    "a change at 400/s, p99 ms until in force": 50.0,
    "a change at 2000/s, p99 ms until in force": 50.0,
}
LARGE_AIMS = {"start to ready s": 8.0, "restart to ready s": 5.0, "RSS MB": 600.0}
Figures = dict[str, float]


def apart(*argv: object, root: Path = ROOT) -> Any:
    """Returns what a measurement prints as JSON, in a network namespace of its own."""
    command = ["unshare", "-n", sys.executable, *map(str, argv)]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(root)}
    )
    return json.loads(done.stdout)


def measure_process(size: tuple[int, int], root: Path = ROOT) -> Figures:
    """The whole agent; by the programs of this checkout, whatever the revision that is measured."""
    text = "x".join(map(str, size))
    found: Figures = apart("-m", "tests.bench.whole_agent", "--size", text, "--root", root)
    return found


def machine() -> dict[str, str]:
    """Returns what a reader must know to compare."""
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    load = Path("/proc/loadavg").read_text().split()[0]
    return {
        "processor": f"{os.cpu_count()} x {model[1] if model else platform.machine()}",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "nft": subprocess.run(["nft", "--version"], capture_output=True, text=True, check=True).stdout.split()[1],
        "load before": load,
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def measure_connections(turns: int) -> dict[str, dict[str, dict[str, tuple[float, float]]]]:
    """Returns, by family, way and column, the nanoseconds of a first packet, and times kube-proxy's layout."""
    options = argparse.Namespace(services=SIZE[0], endpoints=SIZE[1], turns=turns, price_of_counters=False, parts=False)
    found = {}
    for family in Family:
        with tempfile.TemporaryDirectory() as directory:
            sender = Path(directory) / "first_packets"
            source = Path(__file__).parent / "first_packets.c"
            subprocess.run(["cc", "-O2", "-o", sender, source], check=True)
            table = new_connection.measure(options, new_connection.PLANS[family], sender, Path(directory))
        ways = dict.fromkeys(way for way, _ in table.times)
        found[family.value] = {
            way: {
                column: (table.median(way, column), table.ratio(way, "kube-proxy's layout", column))
                for column in new_connection.COLUMNS
            }
            for way in ways
        }
    return found


def measure_names() -> str:
    """Returns what `tests/bench/names.py` prints; empty without its programs."""
    if not (shutil.which("dnsperf") and shutil.which("unbound")):
        return ""
    done = subprocess.run(
        [sys.executable, "tests/bench/names.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def measure(turns: int) -> dict[str, Any]:
    """Measures everything; tells on standard error how far it is."""
    found: dict[str, Any] = {"machine": machine()}
    began = time.monotonic()

    def done(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", file=sys.stderr, flush=True)

    found["engine"] = {f"{n} x {m}": measure_engine(n, m) for n, m in SIZES}
    done("the engine")
    found["process"] = medians([measure_process(SIZE) for _ in range(turns)])
    found["large process"] = measure_process(LARGE)
    done("the agent as a process")
    found["peers"] = apart("-m", "tests.bench.peers", *SIZE)
    done("the kernel alone, and kube-proxy's layouts")
    found["connections"] = measure_connections(turns)
    done("first packets")
    found["established"] = established.measure_here(established.settings([]))
    done("established connections")
    found["established in guests"] = established.measure_in_guests()
    done("the same on Debian's kernels")
    found["names"] = measure_names()
    found["counts"] = apart(
        "-c", "import os; os.system('ip link set lo up'); from tests.bench.work_counts import main; main()"
    )
    done("counts")
    return found


def compare(revision: str, turns: int) -> None:
    """Prints this checkout and another revision, measured in turns: medians, all runs, and the ratio of the medians. The engine's rows may
    be measured in another way there, for each revision brings its own program for it; the process is measured by that of this checkout."""
    kinds: dict[str, Callable[[Path], Figures]] = {
        "the agent, {} x {}".format(*SIZE): partial(measure_process, SIZE),
        "the agent, {} x {}".format(*LARGE): partial(measure_process, LARGE),
        "the engine, {} x {}, each by its own program".format(*SIZE): partial(measure_engine, *SIZE),
    }
    with checkout(revision) as other:
        for root in (ROOT, other):
            subprocess.run(
                [sys.executable, "-m", "compileall", "-q", root / "nodeagent", root / "tests/bench"], check=True
            )
        for what, measured in kinds.items():
            now, before = list[Figures](), list[Figures]()
            for _ in range(turns):
                now.append(measured(ROOT))
                before.append(measured(other))
            print(f"{what}\n", *rows(["", "this", revision[:12], "ratio"], compared(now, before)), sep="\n", flush=True)


def compared(now: list[Figures], before: list[Figures]) -> list[list[str]]:
    """Returns the cells of a table of two revisions: of each row the median, in brackets all runs, and the ratio of the medians."""
    lines = []
    for row in now[0]:
        if row not in before[0]:
            continue
        ours, theirs = ([run[row] for run in runs] for runs in (now, before))
        middles = statistics.median(ours), statistics.median(theirs)
        cells = [
            f"{number(middle)} ({', '.join(map(number, runs))})"
            for middle, runs in zip(middles, (ours, theirs), strict=True)
        ]
        lines.append([row, *cells, f"{middles[0] / middles[1]:.2f}" if middles[1] else ""])
    return lines


def number(value: float) -> str:
    """Three digits that mean something."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.3f}".rstrip("0")


def rows(heads: list[str], lines: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    yield from ("| " + " | ".join(line) + " |" for line in lines)
    yield ""


def with_aim(value: float, aim: float | None) -> tuple[str, str]:
    return number(value), "" if aim is None else number(aim)


def loads(found: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Returns seconds to load everything and milliseconds to change an endpoint, by way."""
    engine = found["engine"]["{} x {}".format(*SIZE)]
    ways = {"nodeagent": (engine["table s"], engine["change p50 ms"])}
    ways |= {way: (figures["load"], figures["change"] * 1000) for way, figures in found["peers"].items()}
    return ways


def established_section(found: dict[str, Any]) -> Iterator[str]:
    """Yields the lines about established connections; none for figures from before they were measured."""
    if "established" not in found:
        return
    yield "## Established connections"
    yield ""
    yield "Nanoseconds of processor time, and in brackets times a connection to an endpoint itself (*no proxy*, with connection tracking only):"
    yield "for a datagram of 64 bytes, for a request of a byte and its answer on a TCP connection (the sum of both ways, which without a queue is"
    yield "also the latency), and for a kilobyte of a stream, in pieces of 64 kB. They are of the whole path with both sockets, by veth pairs;"
    yield "*one static rule* is what translation itself costs. The aim is 1.02; what is above it comes from the kernel's translation of each packet,"
    yield "which any proxy has that translates. Rows take turns every 400 packets (`make bench-established`)."
    yield ""
    for family, ways in found["established"].items():
        yield from established_table(family, ways)
    for kernel, families in found.get("established in guests", {}).items():
        yield f"On {kernel}'s own kernel, which has flowtables, in an emulator with one processor, with {established.GUEST_SERVICES} Services; time by the"
        yield "clock, of which only the ratios mean something. The last row has `dataplane.flowtable`."
        yield ""
        for family, ways in families.items():
            yield from established_table(family, ways)


def established_table(family: str, ways: dict[str, dict[str, tuple[float, float]]]) -> Iterator[str]:
    lines = [
        [
            way,
            *(f"{value:,.0f} ({ratio:.3f})" for value, ratio in columns.values()),
            f"{1e9 / columns[established.DATAGRAM][0]:,.0f}",
        ]
        for way, columns in ways.items()
    ]
    yield from rows([family, *established.COLUMNS, "datagrams a second, a core"], lines)


def document(found: dict[str, Any]) -> str:
    """Returns docs/performance.md."""
    seen, size = found["machine"], "{:,} Services with {} endpoints".format(*SIZE)
    lines = [
        "# Performance",
        "",
        "`make bench` measures this and writes this file (`tests/bench/performance.py`). Compare the rows of a table, which were",
        "measured in one run; times of another machine, or of one that does something else, mean little beside these.",
        "",
        (
            f"Measured on {seen['day']}: {seen['processor']}, Linux {seen['kernel']}, Python {seen['python']}, nft {seen['nft']};"
            f" the load was {seen['load before']} before."
        ),
        "",
        "## Everything, and one change",
        "",
        f"{size}, IPv4. *Everything*: from the desired state to the kernel's answer, into an empty table. *A change*: one endpoint",
        "goes or comes. The kernel alone gets the same bytes, encoded before: it is the floor. kube-proxy's layouts are given to the",
        "programs that kube-proxy runs, with the text ready; what kube-proxy itself takes comes on top.",
        "",
        *rows(
            ["", "everything, s", "a change, ms"],
            [[way, number(load), number(change)] for way, (load, change) in loads(found).items()],
        ),
        "![Everything and one change, beside the kernel alone and kube-proxy's layouts](images/performance.svg)",
        "",
        "## The agent as a process",
        "",
        "Tables of both families, an API server on the other core. Processor time is user and system together.",
        "",
        *rows(
            ["", "{} x {}".format(*SIZE), "aim", "{} x {}".format(*LARGE), "aim"],
            [
                [
                    row,
                    *with_aim(value, AIMS.get(row)),
                    *with_aim(found["large process"][row], LARGE_AIMS.get(row)),
                ]
                for row, value in found["process"].items()
            ],
        ),
        "## By size",
        "",
        "The engine with one family's table, from decoded objects on. `programmed` ends when all is in force, `table` is the part of it that",
        "the table takes. `change` is alone, from the object in the store to the end of its pass; `new class` is a change after which a Service",
        "has a number of endpoints that no other has. The rows with `/s` are of so many changes a second, whose passes are shared",
        "([0103](decisions/0103-changes-share-passes.md)).",
        "",
        *rows(
            ["", *found["engine"]],
            [
                [row, *(number(column[row]) for column in found["engine"].values())]
                for row in next(iter(found["engine"].values()))
            ],
        ),
        "## The first packet of a connection",
        "",
        f"Nanoseconds of processor time for its whole path, and in brackets times kube-proxy's layout; {size}, counters on. The rows take",
        "turns every 400 packets. Which lookups they are is in [dataplane.md](dataplane.md#the-path-of-a-packet).",
        "",
    ]
    for family, ways in found["connections"].items():
        lines += rows(
            [family, *new_connection.COLUMNS],
            [
                [way, *(f"{ns:.0f} ({ratio:.2f})" for ns, ratio in by_column.values())]
                for way, by_column in ways.items()
            ],
        )
    lines += established_section(found)
    if found["names"]:
        lines += ["## Names", "", "Beside unbound with the same names as local data (`make bench-names`).", ""]
        lines += [*(f"    {line}".rstrip() for line in found["names"].splitlines()), ""]
    lines += [
        "## In counts",
        "",
        "What needs no clock, and what `make test` holds to limits (`tests/bench/work_limits.toml`): calls of functions for a change that is",
        "alone in its pass and for one that shares it with seven others, and the bytes of Python's memory for an element.",
        "",
        *rows(["", "counted"], [[row, number(value)] for row, value in found["counts"].items()]),
    ]
    return "\n".join(lines).rstrip() + "\n"


STYLE = (
    "svg{background:#fff;font:13px system-ui,sans-serif;--text:#17202b;--bar:#9fb3cc;--ours:#2f6fc2}"
    "@media(prefers-color-scheme:dark){svg{background:#1a212b;--text:#e6ebf2;--bar:#4a5b73;--ours:#7fb2ff}}"
    "text{fill:var(--text)}rect{fill:var(--bar)}.ours{fill:var(--ours)}"
)
LEFT, WIDTH, ROW, BAR = 300, 900, 24, 480


def plot(found: dict[str, Any]) -> str:
    """Returns two groups of bars as SVG; each group has a scale of its own."""
    parts: list[str] = []
    top = 0
    for index, title in enumerate(("everything, s", "a change, ms")):
        top += ROW
        parts.append(f'<text x="16" y="{top}" font-weight="600">{title}</text>')
        most = max(figures[index] for figures in loads(found).values())
        for way, figures in loads(found).items():
            top += ROW
            kind = ' class="ours"' if way == "nodeagent" else ""
            width = max(1.0, figures[index] / most * BAR)
            parts.append(f'<text x="{LEFT - 8}" y="{top}" text-anchor="end">{escape(way)}</text>')
            parts.append(f'<rect{kind} x="{LEFT}" y="{top - 13}" width="{width:.1f}" height="16"/>')
            parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{top}">{number(figures[index])}</text>')
        top += ROW // 2
    size = f'viewBox="0 0 {WIDTH} {top + ROW}" width="{WIDTH}" height="{top + ROW}"'
    joined = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><style>{STYLE}</style>\n{joined}\n</svg>\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REV", help="compare with another revision instead, and write nothing")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"runs of what is measured several times ({TURNS})")
    parser.add_argument(
        "--from", dest="data", type=Path, metavar="FILE", help="make the document of these figures again"
    )
    options = parser.parse_args()
    if options.against:
        known = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{options.against}^{{commit}}"]
        if subprocess.run(known, check=False, stdout=subprocess.DEVNULL).returncode:
            parser.error(f"--against {options.against}: no such revision of {ROOT}")
        compare(options.against, options.turns)
        return
    found = json.loads(options.data.read_text()) if options.data else measure(options.turns)
    DATA.write_text(json.dumps(found, indent=1) + "\n")
    PLOT.write_text(plot(found))
    DOCUMENT.write_text(document(found))
    print(document(found))


if __name__ == "__main__":
    main()

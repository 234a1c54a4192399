"""What packets of established connections cost, beside no proxy and kube-proxy's layout: `make bench-established`, as root, with a C compiler.

Each way has a router of its own between a client and a server, in network namespaces, as in new_connection.py. *No proxy* is a connection
to an endpoint itself, with connection tracking only. The others go to a Service; one static rule is what translation itself
costs. Where the kernel has flowtables, the last row offloads its connections
(`dataplane.flowtable`). Rows take turns; each figure is a median, and its ratio is to *no proxy*.

`--guests` measures on Debian's kernels in an emulator (`make boot-images`), which have flowtables: only the ratios mean something there.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from nodeagent.model.addresses import Family
from tests.bench.new_connection import PLANS, Plan, Router, inside, kube_proxy, manifests, no_nat, router

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_suffix(".c")
IMAGES = ROOT / ".tools" / "boot" / "vm"
KERNELS = {"bookworm": "Debian 12", "trixie": "Debian 13"}
DATAGRAM = "datagram, ns"
COLUMNS = (DATAGRAM, "request, ns", "kilobyte of a stream, ns")
NO_PROXY, ONE_RULE, KUBE_PROXY = "no proxy", "one static rule", "kube-proxy's layout"
AGENT, OFFLOADING = "nodeagent", "nodeagent, offloading"
TCP, UDP = (80, 8080), (81, 8081)
"""Ports of a Service and of its endpoints."""
ROUNDS, COUNT = 60, 400
GUEST_SERVICES, GUEST_ROUNDS, GUEST_SECONDS = 100, 20, 900.0
Figures = dict[str, dict[str, tuple[float, float]]]
"""Way → column → nanoseconds, and times *no proxy*."""


def compile_sender(directory: Path, *flags: str) -> Path:
    sender = directory / "established"
    subprocess.run(["cc", "-O2", *flags, "-o", sender, SOURCE], check=True)
    return sender


def objects(plan: Plan, services: int, endpoints: int) -> str:
    """Those of new_connection.py, with a UDP port for each Service."""
    found = json.loads(manifests(plan, services, endpoints))
    for item in found["items"]:
        ports = {"Service": item.get("spec", {}).get("ports"), "EndpointSlice": item.get("ports")}.get(item["kind"])
        if ports is not None:
            target = {"port": UDP[0], "targetPort": UDP[1]} if item["kind"] == "Service" else {"port": UDP[1]}
            ports.append({"name": "udp", "protocol": "UDP", **target})
    return json.dumps(found)


def layout(plan: Plan, services: int, endpoints: int) -> str:
    """kube-proxy's layout, with a UDP port of the first Service."""
    targets = ", ".join(f"{slot} : {plan.pod(slot)} . {UDP[1]}" for slot in range(endpoints))
    pick = f"meta l4proto udp dnat {plan.nft} to numgen random mod {endpoints} map {{ {targets} }}"
    table = f"{plan.nft} kube-proxy"
    return (
        f"{kube_proxy(plan, services, endpoints)}\n"
        f"table {table} {{\nchain udp-0 {{\n{pick}\n}}\n}}\n"
        f"add element {table} service-ips {{ {plan.service(0)} . udp . {UDP[0]} : goto udp-0 }}\n"
    )


def one_rule(plan: Plan, services: int, endpoints: int) -> str:
    """Translation to one endpoint, by a rule for each protocol: what translation itself costs, whatever the proxy."""
    del services, endpoints
    to = f"[{plan.pod(0)}]" if plan.family is Family.IPV6 else plan.pod(0)
    rules = (
        f"{plan.nft} daddr {plan.service_prefix} {name} dport {port} dnat to {to}:{target}"
        for name, (port, target) in (("tcp", TCP), ("udp", UDP))
    )
    return (
        f"table {plan.nft} bench {{\nchain prerouting {{\ntype nat hook prerouting priority -100;\n{chr(10).join(rules)}\n}}\n"
        "chain postrouting {\ntype nat hook postrouting priority 100;\n}\n}"
    )


TABLES: Mapping[str, Callable[[Plan, int, int], str]] = {NO_PROXY: no_nat, ONE_RULE: one_rule, KUBE_PROXY: layout}


def program_agent(plan: Plan, node: str, directory: Path, *, flowtable: bool) -> bool:
    """Programs a router; returns whether it offloads connections."""
    option = f"NODEAGENT_DATAPLANE_FLOWTABLE={str(flowtable).lower()}"
    once = (sys.executable, "-m", "nodeagent", "run", "--once", "--manifests", str(directory), "--node-name", "n")
    inside(node, "env", option, *once, "--cluster-cidr", plan.pod_prefix, "--allow-problems")
    return "flow add" in inside(node, "nft", "list", "chain", plan.nft, "nodeagent", "to-flowtable", check=False)


def serve(plan: Plan, ends: Router, endpoints: int) -> None:
    """Gives the sink the addresses of the first Service's endpoints, and a way back."""
    bits = 24 if plan.family is Family.IPV4 else 112
    assert endpoints < 1 << 8, "they are in one range"
    ip = ["ip", "-6"] if plan.family is Family.IPV6 else ["ip"]
    inside(ends.sink, *ip, "route", "add", "local", f"{plan.pod(0)}/{bits}", "dev", "lo")
    inside(ends.sink, *ip, "route", "add", "default", "via", plan.node)


def measure(options: argparse.Namespace, plan: Plan, sender: Path, scratch: Path) -> Figures:
    services, endpoints = options.services, options.endpoints
    directory = scratch / f"manifests-{plan.family.value}"
    directory.mkdir()
    (directory / "all.json").write_text(objects(plan, services, endpoints))
    times: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        rows: dict[str, Router] = {}
        for number, way in enumerate((*TABLES, AGENT, OFFLOADING), 1):
            ends = stack.enter_context(router(plan, number, swallows=False))
            serve(plan, ends, endpoints)
            if way in TABLES:
                inside(ends.node, "nft", "-f", "-", stdin=TABLES[way](plan, services, endpoints))
            elif program_agent(plan, ends.node, directory, flowtable=way == OFFLOADING) is not (way == OFFLOADING):
                continue
            rows[way] = ends
        for _ in range(options.turns):
            for way, line in zip(rows, send(options, plan, sender, rows), strict=True):
                for column, value in zip(COLUMNS, line, strict=True):
                    times.setdefault((way, column), []).append(value)
    return {
        way: {
            column: (median(times[way, column]), ratio(times[way, column], times[NO_PROXY, column]))
            for column in COLUMNS
        }
        for way in rows
    }


def ratio(times: list[float], base: list[float]) -> float:
    """Returns the median of the turns' ratios."""
    return median(one / other for one, other in zip(times, base, strict=True))


def send(options: argparse.Namespace, plan: Plan, sender: Path, rows: Mapping[str, Router]) -> list[list[float]]:
    """Returns the nanoseconds of each column by each router."""
    places = []
    for way, ends in rows.items():
        direct = way == NO_PROXY
        address, at = (plan.pod(0), 1) if direct else (plan.service(0), 0)
        places.append(f"/run/netns/{ends.client},/run/netns/{ends.sink},{address},{TCP[at]},{UDP[at]}")
    command = [str(sender), options.clock, str(options.rounds), str(COUNT), *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{sender}: {done.stderr.strip()}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def measure_here(options: argparse.Namespace) -> dict[str, Figures]:
    """Returns the figures of each family on this kernel."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        sender = options.sender.resolve() if options.sender else compile_sender(scratch)
        return {family.value: measure(options, PLANS[family], sender, scratch) for family in Family}


def measure_in_guests() -> dict[str, dict[str, Figures]]:
    """Returns the same on Debian's kernels; those whose images are not there are left out."""
    found = {}
    for debian, name in KERNELS.items():
        if (IMAGES / "root.img").exists() and (IMAGES / debian / "vmlinuz").exists():
            found[name] = measure_in_guest(IMAGES / debian)
    return found


def measure_in_guest(kernel: Path) -> dict[str, Figures]:
    from tests.boot.vm.emulator import run_in_guest  # noqa: PLC0415 - there is no emulator in the machine itself

    without_caches = shutil.ignore_patterns("__pycache__")
    with tempfile.TemporaryDirectory() as directory:
        job, out = (Path(directory) / name for name in ("job", "out"))
        out.mkdir()
        shutil.copytree(ROOT / "nodeagent", job / "nodeagent", ignore=without_caches)
        shutil.copytree(SOURCE.parent, job / "tests" / "bench", ignore=without_caches)
        compile_sender(job, "-static")
        settings = f"--services {GUEST_SERVICES} --rounds {GUEST_ROUNDS} --turns 3 --clock wall --sender ./established"
        script = (
            f"set -e\nexport PYTHONPATH=/job\npython -m tests.bench.established {settings} --json > out/figures.json\n"
        )
        (job / "job.sh").write_text(script)
        run_in_guest(IMAGES / "root.img", kernel, job, out, seconds=GUEST_SECONDS)
        found: dict[str, Figures] = json.loads((out / "figures.json").read_text())
    return found


def show(title: str, figures: Figures) -> None:
    print(f"\n{title:24}" + "".join(f"{column:>26}" for column in COLUMNS))
    for way, columns in figures.items():
        cells = (f"{value:.0f} ({times:.3f})" for value, times in columns.values())
        print(f"{way:24}" + "".join(f"{cell:>26}" for cell in cells))


def settings(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument(
        "--turns", type=int, default=5, help="how often each row is measured, with connections of its own"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="in a turn")
    parser.add_argument("--clock", choices=("thread", "wall"), default="thread", help="see established.c")
    parser.add_argument("--sender", type=Path, help="established.c, compiled")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--guests", action="store_true", help="measure on Debian's kernels in an emulator instead")
    return parser.parse_args(arguments)


def main() -> None:
    options = settings()
    found = measure_in_guests() if options.guests else {"this kernel": measure_here(options)}
    if options.json:
        print(json.dumps(found if options.guests else found["this kernel"]))
        return
    for name, families in found.items():
        for family, figures in families.items():
            show(f"{family}, {name}", figures)


if __name__ == "__main__":
    main()

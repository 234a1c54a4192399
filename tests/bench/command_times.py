"""How long each command takes on a node with many Services: a table, and exit code 1 where a bound is broken.

    python -m tests.bench.command_times [--services 1000,10000] [--runs 3]

As root. Each command is a process of its own, as for a user; its best run counts, and the processor time of that run is shown beside it.
The package is compiled first, as an installed one is.
Bounds are for a machine that counts (`machine_speed.py`) in REFERENCE_SECONDS, and grow with the time that this one takes before each command:
the speed of a virtual machine changes within a minute.
"""

import argparse
import compileall
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nodeagent.lab.net.network_namespaces import create_namespaces, namespace_name, remove_namespace
from tests.harness.dns.leftover import kill_dns_processes
from tests.harness.machine_speed import slowness

ROOT = Path(__file__).parents[2]
NODEAGENT = (str(Path(sys.executable).with_name("nodeagent")),)
SERVICE, ADDRESS = "ns-01/svc-00001", "10.96.0.2"
REFERENCE_SECONDS = 0.16
BOUNDS, PROBING_SECONDS = {1000: 1.0, 10000: 3.0}, 5.0
"""Services → seconds; of commands that connect to endpoints."""
ENDPOINTS = 10
START_SECONDS = 120.0
COMMANDS = {
    "help": ("help",),
    "version": ("version",),
    "completion of a Service": ("explain", "COMPLETE"),
    "explain": ("explain",),
    "explain SERVICE --no-probe": ("explain", SERVICE, "--no-probe"),
    "explain ADDRESS --no-probe": ("explain", ADDRESS, "--no-probe"),
    "explain SERVICE": ("explain", SERVICE),
    "explain --probe": ("explain", "--probe"),
    "check": ("check",),
    "problems": ("problems",),
    "trace ADDRESS": ("trace", "192.0.2.1", f"{ADDRESS}:80"),
    "trace SERVICE": ("trace", "192.0.2.1", SERVICE),
    "show": ("show",),
    "diff": ("diff",),
    "journal": ("journal",),
    "log-level": ("log-level",),
    "plan": ("plan", "--manifests", "DIRECTORY"),
    "dns SERVICE": ("dns", "svc-00001.ns-01"),
    "top --once": ("top", "--once", "--every", "0.1"),
    "bundle": ("bundle", "-"),
    "replay": ("replay", "BUNDLE", "true"),
    "metrics (HTTP)": ("METRICS",),
}
WITHOUT_AGENT = frozenset({"help", "show", "top --once", "replay", "metrics (HTTP)"})
PROBING = frozenset({"explain SERVICE", "explain --probe", "replay"})
"""And replay, which programs a node."""
NODE = "bench"
"""No endpoint is on it: those of others all have a route here."""
NAMES = "192.0.2.1"
GET = "import sys, urllib.request as u; sys.stdout.write(u.urlopen('http://127.0.0.1:10249/metrics').read().decode())"


@contextmanager
def node() -> Iterator[str]:
    """A network namespace whose interface leads everywhere, to a gateway that drops all."""
    name = namespace_name(os.getpid(), secrets.token_hex(3), "node")
    create_namespaces([name])
    try:
        for command in (
            "link set lo up",
            "link add out type veth peer name far",
            "link set far up",
            "link set out up",
            "address add 192.0.2.1/24 dev out",
            "neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev out nud permanent",
            "route add default via 192.0.2.2 dev out",
        ):
            subprocess.run(["ip", "-n", name, *command.split()], check=True)
        yield name
    finally:
        remove_namespace(name)


@contextmanager
def agent(namespace: str, manifests: Path, place: Path) -> Iterator[None]:
    """An agent that is ready."""
    names = ("--dns", "--dns-listen", NAMES, "--dns-upstreams", "127.0.0.1:9")
    flags = (
        *names,
        "--node-name",
        NODE,
        "--cluster-cidr",
        "10.128.0.0/9",
        "--socket",
        str(place),
        "--families",
        "IPv4",
    )
    argv = ["ip", "netns", "exec", namespace, *NODEAGENT, "run", "--manifests", str(manifests), *flags]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        end = time.monotonic() + START_SECONDS
        while " ready: " not in process.stdout.readline():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("the agent did not become ready")
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=START_SECONDS)
        kill_dns_processes(namespace)  # it stays when its agent ends


def seconds_of(namespace: str, argv: list[str], runs: int, complete: str = "") -> tuple[float, float, str]:
    """The best run, its processor time, and the first line. complete: the words of which the last is to be completed."""
    best, used, line = float("inf"), 0.0, ""
    environment = {
        "_NODEAGENT_COMPLETE": "zsh_complete",
        "COMP_WORDS": complete,
        "COMP_CWORD": str(len(complete.split()) - 1),
    }
    for _ in range(runs):
        before, begun = _processor_seconds(), time.perf_counter()
        done = subprocess.run(
            ["ip", "netns", "exec", namespace, *argv],
            cwd=ROOT,
            capture_output=True,
            check=False,
            env=os.environ | (environment if complete else {}),
        )
        took = time.perf_counter() - begun
        if took < best:
            best, used = took, _processor_seconds() - before
        shown = [one for one in (done.stdout or done.stderr).splitlines() if one not in (b"plain", b"_")]
        line = shown[0].decode(errors="replace") if shown else ""
        line = line if line.isprintable() else ""  # an archive
    return best, used, line


def _processor_seconds() -> float:
    """Of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(services: int, runs: int) -> bool:
    """Prints a table; whether all bounds hold."""
    good = True
    print(
        f"{services} Services with {ENDPOINTS} endpoints each; a bound is as many times longer as this machine is slower"
    )
    with tempfile.TemporaryDirectory() as directory, node() as namespace:
        manifests, place = Path(directory, "manifests"), Path(directory, "agent.sock")
        generate = [sys.executable, str(ROOT / "tests/bench/generate_manifests.py"), "--services", str(services)]
        subprocess.run(
            [*generate, "--endpoints", str(ENDPOINTS), "--out", str(manifests)], check=True, stdout=subprocess.DEVNULL
        )
        with agent(namespace, manifests, place):
            bundle = str(Path(directory, "bundle.tar.gz"))
            subprocess.run(
                ["ip", "netns", "exec", namespace, *NODEAGENT, "bundle", bundle, "--socket", str(place)], check=True
            )
            words = {"DIRECTORY": str(manifests), "BUNDLE": bundle}
            for name, arguments in COMMANDS.items():
                complete = ""
                if arguments == ("METRICS",):
                    argv = [sys.executable, "-c", GET]
                elif "COMPLETE" in arguments:
                    argv, complete = list(NODEAGENT), f"nodeagent {arguments[0]} --socket {place} ns-01/svc-"
                else:
                    socket = () if name in WITHOUT_AGENT else ("--socket", str(place))
                    argv = [*NODEAGENT, *(words.get(one, one) for one in arguments), *socket]
                slow = min(slowness(REFERENCE_SECONDS) for _ in range(2))
                took, used, line = seconds_of(namespace, argv, runs, complete)
                bound = (PROBING_SECONDS if name in PROBING else BOUNDS[services]) * slow
                good &= took <= bound
                verdict = "ok" if took <= bound else "TOO LONG"
                print(
                    f"  {name:28} {took:6.2f} s  of {bound:5.2f}  cpu {used:5.2f}  {verdict:8}  {line[:60]}", flush=True
                )
    return good


def _counts(text: str) -> list[int]:
    known = {str(count): count for count in BOUNDS}
    if unknown := [one for one in text.split(",") if one not in known]:
        raise argparse.ArgumentTypeError(
            f"no bound is known for {unknown[0]!r} Services, only for {' and '.join(known)}"
        )
    return [known[one] for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=_counts, default="1000,10000", help="of those with a bound (default: both)")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    compileall.compile_dir(ROOT / "nodeagent", quiet=1)
    good = [measure(count, options.runs) for count in options.services]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()

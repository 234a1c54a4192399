"""What a change costs in two revisions, in turns: `python -m tests.bench.changes_in_turns REVISION`, as root.

Both agents run all the time, each in a network namespace of its own with a server of its own, and get changes one after the other. So what
else the machine does counts for both. Time is what the scheduler accounts to all threads of the agent.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.table import checkout, medians, print_table
from tests.bench.whole_agent import RATES, ROOT, Server, running

PRIORITY = 10
"""SCHED_RR, above all other work of the machine."""


def processor_milliseconds(pid: int) -> float:
    """Returns the time of all threads that run now; the ticks of `process_figures` are too coarse for a few seconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def follow_orders(root: Path, size: str) -> None:
    """Runs an agent; for each line with a rate and seconds on standard input prints the cost of a change and the p99 until it was in force."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    server = Server(*map(int, size.split("x")))
    try:
        with running(root, server.port) as agent:
            agent.ready_after()
            for pid in (agent.pid, server.pid):
                subprocess.run(["chrt", "--rr", "--all-tasks", "--pid", str(PRIORITY), str(pid)], check=True)
            print("ready", flush=True)
            for line in sys.stdin:
                rate, seconds = map(float, line.split())
                before = processor_milliseconds(agent.pid)
                late = float(server.order("churn", rate, seconds).split()[0])
                time.sleep(0.2)
                spent = processor_milliseconds(agent.pid) - before
                print(json.dumps([spent / (rate * seconds), late * 1000]), flush=True)
    finally:
        server.end()


def compare(roots: dict[str, Path], size: str, turns: int, seconds: float) -> None:
    """Prints medians. The first turn does not count: in it, lists of a new length make chains."""
    module = [sys.executable, "-m", "tests.bench.changes_in_turns", "--size", size]
    children = {
        name: subprocess.Popen(
            ["unshare", "-n", *module, "--follow", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for name, root in roots.items()
    }

    def order(name: str, *words: object) -> str:
        pipe, answers = children[name].stdin, children[name].stdout
        assert pipe is not None
        assert answers is not None
        if words:
            pipe.write(" ".join(map(str, words)) + "\n")
            pipe.flush()
        return answers.readline()

    try:
        for name in children:
            order(name)
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in children}
        for _ in range(turns + 1):
            for name in children:
                runs[name].append({})
            for rate in RATES:
                for name, found in runs.items():
                    cost, late = json.loads(order(name, rate, seconds))
                    found[-1] |= {f"{rate}/s processor ms": cost, f"{rate}/s p99 ms": late}
        print_table([*runs], [medians(found[1:]) for found in runs.values()])
    finally:
        for child in children.values():
            child.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", nargs="?", default="main", help="what this checkout is compared with")
    parser.add_argument("--size", default="10000x10", help="services x endpoints")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=4.0, help="of changes, in each turn, at each rate")
    parser.add_argument("--follow", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.follow:
        follow_orders(options.follow, options.size)
        return
    with checkout(options.revision) as other:
        compare({options.revision[:12]: other, "here": ROOT}, options.size, options.turns, options.seconds)


if __name__ == "__main__":
    main()

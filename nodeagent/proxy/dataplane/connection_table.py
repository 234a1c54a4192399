"""The kernel's connection table of this network namespace: how full it is, and what that means (pure but for the reading)."""

from pathlib import Path

from nodeagent.model.problem import Problem
from nodeagent.model.reports import ConnectionTable

SUBJECT = "connection table"
NEARLY_FULL = 0.9
CURE = "sysctl -w net.netfilter.nf_conntrack_max=N, or find who opens so many: conntrack -L"
_SETTINGS = Path("proc/sys/net/netfilter")
_STATISTICS = Path("proc/thread-self/net/stat/nf_conntrack")


def read_connection_table(root: Path = Path("/")) -> ConnectionTable | None:
    """None where the kernel has none, or this process may not look."""
    try:
        entries, limit = (int((root / _SETTINGS / f"nf_conntrack_{name}").read_text()) for name in ("count", "max"))
        heads, *rows = (line.split() for line in (root / _STATISTICS).read_text().splitlines())
        drops, clashes = heads.index("drop"), heads.index("insert_failed")
        return ConnectionTable(
            entries, limit, sum(int(row[drops], 16) for row in rows), sum(int(row[clashes], 16) for row in rows)
        )
    except (OSError, ValueError, IndexError):
        return None


def table_problems(now: ConnectionTable, before: ConnectionTable | None) -> tuple[Problem, ...]:
    """What is wrong with it. before: at the look before, so that a table that is full for a moment is seen, too."""
    dropped = 0 if before is None else now.dropped_when_full - before.dropped_when_full
    if now.limit and (now.entries >= now.limit or dropped > 0):
        detail = f"it is full ({now.limit} entries): new connections are dropped; {CURE}"
        return (Problem(SUBJECT, "ConnectionTableFull", detail),)
    if now.limit and now.entries >= NEARLY_FULL * now.limit:
        detail = f"it is nearly full (more than {NEARLY_FULL:.0%} of {now.limit} entries); {CURE}"
        return (Problem(SUBJECT, "ConnectionTableNearlyFull", detail),)
    return ()

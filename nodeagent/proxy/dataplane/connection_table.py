"""The kernel's connection table of this network namespace: how full it is, and what follows from that (pure except for the reading)."""

from pathlib import Path

from nodeagent.model.problem import Problem
from nodeagent.model.reports import ConnectionTable

SUBJECT = "connection table"
NEARLY_FULL = 0.9
CURE = "sysctl -w net.netfilter.nf_conntrack_max=N, or find who opens so many: conntrack -L"
_SETTINGS = Path("proc/sys/net/netfilter")
_STATISTICS = Path("proc/thread-self/net/stat/nf_conntrack")


def read_connection_table(root: Path = Path("/")) -> ConnectionTable | None:
    """Returns the figures of the table; None if the kernel has no such table, or this process may not read it."""
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
    """Returns the problems of the table. before: the figures of the previous look, so that a table that was full for a moment is seen,
    too."""
    dropped = 0 if before is None else now.dropped_when_full - before.dropped_when_full
    if now.limit and (now.entries >= now.limit or dropped > 0):
        detail = f"it is full ({now.limit} entries): new connections are dropped; {CURE}"
        return (Problem(SUBJECT, "ConnectionTableFull", detail),)
    if now.limit and now.entries >= NEARLY_FULL * now.limit:
        detail = f"it is nearly full (more than {NEARLY_FULL:.0%} of {now.limit} entries); {CURE}"
        return (Problem(SUBJECT, "ConnectionTableNearlyFull", detail),)
    return ()

"""Checks how full the set of clients with session affinity is (pure)."""

from nodeagent.diagnosis.checks.finding import Finding, Result

NEARLY_FULL = 0.9


def affinity_finding(family: str, count: int, most: int) -> Finding:
    """Returns the finding for one family. count: clients that are remembered. most: the size of their set."""
    check, fill = f"{family} affinity", f"{count} of {most} clients are remembered"
    cure = "lower sessionAffinityConfig.clientIP.timeoutSeconds of the Services with affinity and many clients"
    if count >= most:
        detail = f"it is full ({fill}): new clients go to another endpoint with each connection"
        return Finding(check, Result.FAILED, detail, cure)
    if count >= NEARLY_FULL * most:
        return Finding(check, Result.NOTE, f"nearly full: {fill}", cure)
    return Finding(check, Result.OK, fill)

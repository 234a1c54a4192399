"""The one form of a first line: `VERDICT: what, because why; do this`."""


def verdict_line(verdict: str, what: str, because: str, do: str = "", more: int = 0) -> str:
    """Returns the verdict as one sentence. verdict: `broken`, `impaired`, `not healthy`. what, because, do: its parts.

    do: empty if `because` already says what to do, or if nothing can be done. more: the number of further findings.
    """
    cure = f"; {do}" if do else ""
    others = f" (and {more} more)" if more else ""
    return f"{verdict}: {what}, because {because}{cure}{others}"

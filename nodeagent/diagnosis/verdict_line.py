"""The one form of a first line: `VERDICT: what, because why; do this`."""


def verdict_line(verdict: str, what: str, because: str, do: str = "", more: int = 0) -> str:
    """verdict: `broken`, `impaired`, `not healthy`. what, because, do: parts of a sentence. more: how many others are wrong too.

    do: empty where `because` says already what to do, or nobody can do anything.
    """
    cure = f"; {do}" if do else ""
    others = f" (and {more} more)" if more else ""
    return f"{verdict}: {what}, because {because}{cure}{others}"

"""Text from objects: made safe to show, and compared with what its author may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches

_SIMILARITY = 0.6


def printable(text: str) -> str:
    """Returns `text` with every character that a terminal would execute, or a reader not see, replaced by an escape (``\\x1b``).

    Those are control characters, line and paragraph separators, direction overrides and other format characters,
    blanks other than the space, lone surrogates and what Unicode has not assigned (`str.isprintable`).
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def counted(number: int, noun: str) -> str:
    """Returns `1 problem`, `2 problems`: for nouns whose plural ends in s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def none_of_its(number: int, noun: str) -> str:
    """Returns `none of its 2 endpoints is`, `its only endpoint is not`: the start of a sentence that ends with a word such as `ready`."""
    return f"its only {noun} is not" if number == 1 else f"none of its {number} {noun}s is"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns ``; did you mean X?`` if one of `known` is `word` in another case, or close to it; else an empty text."""
    candidates = sorted(known)
    folded = {candidate.lower(): candidate for candidate in candidates}
    meant = folded.get(word.lower())
    if meant is None:
        close = get_close_matches(word.lower(), folded, n=1, cutoff=_SIMILARITY)
        meant = folded[close[0]] if close else None
    return f"; did you mean {meant}?" if meant is not None else ""

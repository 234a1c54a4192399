"""The view that the user selects in `nodeagent top`, and the effect of each key (pure)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from nodeagent.diagnosis.explain.rates import Rate
from nodeagent.model.text import printable

SORTED: Mapping[str, Callable[[Rate], tuple[object, ...]]] = {
    "rate": lambda rate: (-rate.per_second, -rate.total, rate.service),
    "total": lambda rate: (-rate.total, rate.service),
    "name": lambda rate: (rate.service,),
}
"""Sort orders: {name: sort key}. The key `s` selects the next one."""

ENTER, ESCAPE, BACKSPACE, LEFT, RIGHT = "enter", "escape", "backspace", "left", "right"
_NAMED = {"\r": ENTER, "\n": ENTER, "\x7f": BACKSPACE, "\b": BACKSPACE, "\x1b": ESCAPE}
_SEQUENCES = {"\x1b[D": LEFT, "\x1bOD": LEFT, "\x1b[C": RIGHT, "\x1bOC": RIGHT}
_LONGEST_FILTER = 200


@dataclass(frozen=True, slots=True)
class Screen:
    """The view. by: the order. wanted: text that names must contain. typing: keys edit `wanted`. help: show the keys."""

    by: str = "rate"
    reverse: bool = False
    wanted: str = ""
    typing: bool = False
    help: bool = False
    ended: bool = False


def keys_of(text: str) -> list[str]:
    """Returns the keys in a terminal's input: characters, and names of special keys. Drops unknown sequences."""
    found: list[str] = []
    while text:
        size = _sequence(text)
        if size > 1:
            if (name := _SEQUENCES.get(text[:size])) is not None:
                found.append(name)
        elif (key := _NAMED.get(text[0], text[0])) in _NAMED.values() or key.isprintable():
            found.append(key)
        text = text[size:]
    return found


def _sequence(text: str) -> int:
    """Returns the length of the first key: ESC [ up to its final byte (ECMA-48, 5.4), ESC O and one more, or one."""
    if text.startswith("\x1bO"):
        return min(3, len(text))
    if not text.startswith("\x1b["):
        return 1
    return next((at + 1 for at, one in enumerate(text) if at > 1 and "@" <= one <= "~"), len(text))


def apply_key(screen: Screen, key: str) -> Screen:
    """Returns the screen after a key. An unknown key changes nothing."""
    if screen.typing:
        return _edit_filter(screen, key)
    match key:
        case "q":
            screen = replace(screen, ended=True)
        case "s" | "right":
            screen = replace(screen, by=_other_order(screen.by, 1))
        case "S" | "left":
            screen = replace(screen, by=_other_order(screen.by, -1))
        case "r":
            screen = replace(screen, reverse=not screen.reverse)
        case "/":
            screen = replace(screen, typing=True)
        case "escape":
            screen = replace(screen, wanted="", help=False)
        case "?" | "h":
            screen = replace(screen, help=not screen.help)
    return screen


def _edit_filter(screen: Screen, key: str) -> Screen:
    match key:
        case "enter":
            return replace(screen, typing=False)
        case "escape":
            return replace(screen, wanted="", typing=False)
        case "backspace":
            return replace(screen, wanted=screen.wanted[:-1])
    if len(key) > 1:
        return screen
    return replace(screen, wanted=(screen.wanted + key)[:_LONGEST_FILTER])


def _other_order(by: str, step: int) -> str:
    names = list(SORTED)
    return names[(names.index(by) + step) % len(names)]


def select_rows(rates: Sequence[Rate], screen: Screen, rows: int | None) -> list[Rate]:
    """Returns the rates that match the filter (any case), sorted; at most `rows` (None: all)."""
    wanted = screen.wanted.casefold()
    found = [rate for rate in rates if wanted in rate.service.casefold()]
    found.sort(key=SORTED[screen.by], reverse=screen.reverse)
    return found[:rows]


def footer(screen: Screen, shown: int, known: int) -> tuple[str, ...]:
    """Returns the lines below the table: the number of rows, and the keys."""
    if screen.typing:
        return (f"filter: {printable(screen.wanted)}_   Enter keeps it, Esc removes it",)
    order = f"{screen.by}, reversed" if screen.reverse else screen.by
    filtered = f"   filter: {printable(screen.wanted)}" if screen.wanted else ""
    state = f"{shown} of {known}   by {order}{filtered}   ? keys"
    if not screen.help:
        return (state,)
    return (state, "s S next or previous order   r reverse   / filter   Esc no filter   ? keys   q quit")

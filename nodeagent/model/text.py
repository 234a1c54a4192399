"""Text from objects, made safe to show."""


def printable(text: str) -> str:
    """`text` with every character a terminal would obey, or a reader not see, written as an escape (``\\x1b``).

    Those are control characters, line and paragraph separators, direction overrides and other format characters,
    blanks other than the space, lone surrogates and what Unicode has not assigned (`str.isprintable`).
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )

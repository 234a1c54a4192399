"""The end of a command's help: how it is used."""


def examples(*lines: str) -> str:
    """As click shows them, a line each. What a line is for may stand behind it, after two spaces."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)

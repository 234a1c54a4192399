"""The examples at the end of a command's help."""


def examples(*lines: str) -> str:
    """Returns examples for `epilog=`, one on each line. A remark may follow a command, after two spaces."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)

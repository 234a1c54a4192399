"""`python -m nodeagent`, and the command `nodeagent`: what signals do comes before the imports, which take time."""

import importlib
import sys

from nodeagent.cli.early_end import end_daemon_early


def main(prog_name: str | None = None) -> None:
    """The command line of this process. prog_name: as what it shows itself, None for as it was called."""
    end_daemon_early(sys.argv[1:])
    importlib.import_module("nodeagent.cli.main").main(prog_name=prog_name)


if __name__ == "__main__":
    main()

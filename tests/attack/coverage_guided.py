"""The same targets as the law of hostile bytes, led by what code they reach: `make fuzz`, no test of its own.

Usage: coverage_guided.py TARGET [libFuzzer option...]; without a target, what targets there are.
"""

import sys
import tempfile
from importlib import import_module
from pathlib import Path

atheris = import_module("atheris")  # `make fuzz` installs it, for nothing else

with atheris.instrument_imports(include=["nodeagent"]):
    from tests.harness.fuzzing.targets import TARGETS


def main(arguments: list[str]) -> None:
    known = {target.name.replace(" ", "-").replace(",", ""): target for target in TARGETS}
    if not arguments or arguments[0] not in known:
        sys.exit(f"which? {' '.join(known)}")
    target = known[arguments[0]]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(target.seeds):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup(
            [sys.argv[0], corpus, "-max_len=20000", "-timeout=10", "-rss_limit_mb=1024", *arguments[1:]], target.check
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
